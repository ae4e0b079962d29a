/** The clock of the first sound: from the end of what the user says to the answer's first audible sample. */

import type { Ledger } from "./wire";

/**
 * What the time runs from: `sent`, something typed; `released`, the key of push to talk; `spoken`, the last word; and
 * `ended`, the end that the server found of a spoken turn, where it does not tell the silence before it.
 */
export type After = "sent" | "released" | "spoken" | "ended";

/** The time that an answer's first sound took, in ms, and its parts as far as the server sends them. */
export interface FirstSound {
  readonly heard_ms: number;
  readonly after: After;
  readonly ledger: Ledger | null;
}

type Turn = { readonly at_ms: number; readonly after: Exclude<After, "ended">; readonly silence_ms: number | null };
type Heard = { readonly ms: number } & Pick<Turn, "after" | "silence_ms">;

export class FirstSoundClock {
  private turn: Turn | null = null; // until its answer sounds
  private early = false; // something sounds for which nobody waited
  private heard: Heard | null = null; // until the answer's ledger comes
  private ledger: Ledger | null | undefined; // of an answer that is complete and does not sound yet; null: it has none

  constructor(private readonly tell: (figure: FirstSound) => void) {}

  /** Whether the user waits for a sound. */
  get running(): boolean {
    return this.turn !== null;
  }

  /** Whether an answer was heard whose ledger is still to come. */
  get heardFirst(): boolean {
    return this.heard !== null;
  }

  /**
   * The user's turn ended at `at_ms`; of a spoken one that is when the server said so. Over a call the answer may sound
   * before that is known: sound and events go two ways. `silence_ms` is the silence that ended a spoken turn; null: the
   * server tells it later, in the answer's ledger.
   */
  begin(after: Turn["after"], at_ms: number, silence_ms: number | null = null): void {
    const early = after === "spoken" && this.early;
    this.turn = { at_ms, after, silence_ms };
    this.heard = null;
    this.ledger = undefined;
    this.early = false;
    if (early) this.audible(at_ms);
  }

  /** The answer's first sample sounds at `at_ms`. A spoken turn's figure waits until the silence that ended it is known. */
  audible(at_ms: number): void {
    if (this.turn === null) {
      this.early = true;
      return;
    }
    const { after, silence_ms } = this.turn;
    this.heard = { ms: at_ms - this.turn.at_ms, after, silence_ms };
    this.turn = null;
    if (this.ledger !== undefined || after !== "spoken" || silence_ms !== null) this.tell(figureOf(this.heard, this.ledger ?? null));
  }

  /** The answer is complete: before it sounds, when it is short; after, when it is long. */
  settle(ledger: Ledger | null): void {
    if (this.heard !== null) this.tell(figureOf(this.heard, ledger));
    else this.ledger = ledger;
    this.heard = null;
  }

  /** No sound will come; what began to sound before does not count. */
  forget(): void {
    this.turn = null;
    this.early = false;
  }
}

function figureOf({ ms, after, silence_ms }: Heard, ledger: Ledger | null): FirstSound {
  if (after !== "spoken") return { heard_ms: ms, after, ledger };
  const before_ms = ledger?.turn_ms ?? silence_ms;
  if (before_ms === null) return { heard_ms: ms, after: "ended", ledger };
  return { heard_ms: before_ms + ms, after, ledger };
}
