/** Sayings that were typed or shown before they could be sent: they wait, in order, for the session. Knows no line. */

import type { Saying } from "./client";

const MOST = 32; // one user who types fast, some seconds

export class Sayings {
  private waiting: Saying[] = [];

  get empty(): boolean {
    return this.waiting.length === 0;
  }

  /** Whether there was room. */
  add(text: string, picture: string | null): boolean {
    if (this.waiting.length >= MOST) return false;
    this.waiting.push({ ...(text && { text }), ...(picture && { picture }) });
    return true;
  }

  /** Their texts, in order. */
  get texts(): string[] {
    return this.waiting.map(({ text = "A picture" }) => text);
  }

  /** All of them, once. */
  take(): Saying[] {
    return this.waiting.splice(0);
  }
}
