/** A line that comes back by itself when it is lost, as long as it is wanted. Knows nothing of what goes over it. */

import { dial, type Places, type Wanted } from "./dial";
import type { Line, LineEvents } from "./line";
import type { Player } from "./player";
import type { Ticket } from "./resume";
import { Problem, problemOf, type Code } from "./problem";

export interface ConnectionEvents extends Omit<LineEvents, "closed"> {
  /** `fellBack`: why it is no call although one was wanted. */
  opened(line: Line, fellBack: Problem | null): void;
  /** `retry_ms`: when the next attempt comes; null: none will. */
  lost(problem: Problem, retry_ms: number | null): void;
}

const RETRY_MS = [500, 1000, 2000, 4000, 8000]; // then 8 s for ever
const FINAL: ReadonlySet<Code> = new Set(["key", "origin", "insecure", "refused"]); // would be said again

export class Connection {
  /** The open line. */
  line: Line | null = null;
  private wish: AbortController | null = null; // of the line that is open or on its way
  private attempts = 0;
  private timer = 0; // of the next attempt
  private noCall: Problem | null = null; // why the last call failed: no need to wait for the same again

  constructor(
    private readonly player: () => Player,
    private readonly places: Places,
    private readonly wanted: () => Wanted,
    private readonly ticket: () => Ticket | null,
    private readonly events: ConnectionEvents,
  ) {}

  /** Whether a line is open or being sought. */
  get open(): boolean {
    return this.wish !== null;
  }

  /** Whether a line or an attempt was lost, and no other line is open yet. */
  get lost(): boolean {
    return this.line === null && this.attempts > 0;
  }

  /** Opens the line; nothing when it is open or on its way. */
  start(): void {
    if (this.open) return;
    this.noCall = null;
    window.addEventListener("online", this.hurry);
    void this.dial();
  }

  /** Closes the line for good. */
  stop(): void {
    window.removeEventListener("online", this.hurry);
    this.giveUp();
    this.attempts = 0;
    this.line?.close();
    this.line = null;
  }

  /** The server took the session: what comes next is a new trouble, not the old one. */
  settled(): void {
    this.attempts = 0;
  }

  /** Try again now, if a line was lost. */
  retry(): void {
    if (this.lost) void this.dial();
  }

  /** A laptop that wakes up or finds its network again need wait neither for the next attempt nor for one that hangs. */
  private readonly hurry = (): void => this.retry();

  private giveUp(): void {
    clearTimeout(this.timer);
    this.wish?.abort();
    this.wish = null;
  }

  private async dial(): Promise<void> {
    this.giveUp();
    const { signal } = (this.wish = new AbortController());
    this.events.changed();
    const current = () => !signal.aborted;
    const guarded = this.guarded(current);
    const closed = (problem: Problem) => current() && this.fail(problem);
    try {
      const wanted = this.noCall !== null ? "websocket" : this.wanted();
      const wish = { wanted, ticket: this.ticket(), signal };
      const { line, fellBack } = await dial(wish, this.places, this.player(), { ...guarded, closed });
      if (!current()) return line.close(); // the user thought better of it meanwhile
      this.noCall ??= fellBack;
      this.line = line;
      this.events.opened(line, this.noCall);
    } catch (error) {
      if (current()) this.fail(problemOf(error, "Connecting"));
    }
  }

  /** Nothing of a line that is not wanted any more is told. */
  private guarded(current: () => boolean): Omit<LineEvents, "closed"> {
    const { events } = this;
    return {
      queued: (position) => current() && events.queued(position),
      received: (event) => current() && events.received(event),
      sent: (event) => current() && events.sent(event),
      changed: () => current() && events.changed(),
      audible: (at_ms, item) => current() && events.audible(at_ms, item),
      played: (item, head) => current() && events.played(item, head),
      trouble: (problem) => current() && events.trouble(problem),
    };
  }

  private fail(problem: Problem): void {
    this.line = null;
    if (FINAL.has(problem.code)) {
      this.stop();
      return this.events.lost(problem, null);
    }
    const retry_ms = RETRY_MS[Math.min(this.attempts++, RETRY_MS.length - 1)]!;
    this.timer = window.setTimeout(() => void this.dial(), retry_ms);
    this.events.lost(problem, retry_ms);
  }
}
