/** What was typed or shown before it could be said: it waits, in order, for the session. Knows no line. */

import type { Saying } from "./client";

const MOST = 8; // one user, some seconds

export class Sayings {
  private waiting: Saying[] = [];

  get empty(): boolean {
    return this.waiting.length === 0;
  }

  add(text: string, picture: string | null): void {
    if (this.waiting.length < MOST) this.waiting.push({ ...(text && { text }), ...(picture && { picture }) });
  }

  /** All of them, once. */
  take(): Saying[] {
    return this.waiting.splice(0);
  }
}
