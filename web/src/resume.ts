/** The way back to a session whose connection was lost: Parley's own, where the server offers it. */

import type { LineKind } from "./line";
import type { ServerEvent } from "./wire";

/** A way back, good for some seconds and over a line of this kind: the session's token, and the last event that came. */
export interface Ticket {
  readonly kind: LineKind;
  readonly token: string;
  readonly after: number;
}

export class Resume {
  /** The line that carries the session. */
  kind: LineKind = "websocket";
  private token: string | null = null;
  private after = 0;

  /** null: there is no way back. */
  get ticket(): Ticket | null {
    return this.token === null ? null : { kind: this.kind, token: this.token, after: this.after };
  }

  restore(ticket: Ticket | null): void {
    this.kind = ticket?.kind ?? "websocket";
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
