/** What it takes to come back to a session whose connection was lost: Parley's own, where the server offers it. */

import type { ServerEvent } from "./wire";

/** A way back, good for some seconds: the session's token, and the last event that came. */
export interface Ticket {
  readonly token: string;
  readonly after: number;
}

export class Resume {
  private token: string | null = null;
  private after = 0;

  /** null: there is no way back. */
  get ticket(): Ticket | null {
    return this.token === null ? null : { token: this.token, after: this.after };
  }

  restore(ticket: Ticket | null): void {
    this.token = ticket?.token ?? null;
    this.after = ticket?.after ?? 0;
  }

  /** Every event goes by here. */
  note(event: ServerEvent): void {
    const { seq } = (event as { parley?: { seq?: number } }).parley ?? {};
    if (seq !== undefined) this.after = seq;
    if (event.type === "session.created") this.token = null;
    if (event.type === "session.updated") this.token = event.session.parley?.resume_token ?? this.token;
  }
}
