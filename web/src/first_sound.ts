/** The clock of the first sound: from the end of the user's turn to the answer's first audible sample. */

import type { Ledger } from "./wire";

/** How long an answer's first sound took, in ms, and where the time went as far as the server tells. */
export interface FirstSound {
  readonly heard_ms: number;
  readonly after: "sent" | "spoken";
  readonly ledger: Ledger | null;
}

type Turn = { readonly at_ms: number; readonly after: FirstSound["after"] };

export class FirstSoundClock {
  private turn: Turn | null = null; // until its answer sounds
  private heard: Omit<FirstSound, "ledger"> | null = null; // until the answer's ledger comes
  private ledger: Ledger | null = null; // until its answer sounds

  constructor(private readonly tell: (figure: FirstSound) => void) {}

  /** Whether the user waits for a sound. */
  get running(): boolean {
    return this.turn !== null;
  }

  /** The user's turn ended at `at_ms`. */
  begin(after: FirstSound["after"], at_ms: number): void {
    this.turn = { at_ms, after };
    this.heard = this.ledger = null;
  }

  /** The answer's first sample sounds at `at_ms`. */
  audible(at_ms: number): void {
    if (this.turn === null) return;
    this.heard = { heard_ms: at_ms - this.turn.at_ms, after: this.turn.after };
    this.turn = null;
    this.tell({ ...this.heard, ledger: this.ledger });
  }

  /** The answer is complete: before it sounds, when it is short; after, when it is long. */
  settle(ledger: Ledger | null): void {
    if (this.heard !== null) this.tell({ ...this.heard, ledger });
    else this.ledger = ledger;
    this.heard = null;
  }

  /** No sound will come. */
  forget(): void {
    this.turn = null;
  }
}
