/**
 * An answer's words, told as they are heard: between the text, which comes early, and the loudspeaker.
 *
 * Where the server does not say how far the voice is, or nobody knows what is heard, words are told as they come.
 */

import { SpokenText } from "./spoken_text";
import type { Mark } from "./wire";

/** So much of an item's sound is heard at `at_ms` on performance.now()'s clock; it goes on as far as `until_ms`. */
export interface Playhead {
  readonly ms: number;
  readonly at_ms: number;
  readonly until_ms: number;
}

const UNMARKED_MS = 1_500; // longer than any word
const UNHEARD_MS = 2_000; // a loudspeaker that has not begun by now lets nothing be heard

export class Subtitles {
  private item: string | null = null; // the one that is told in step
  private words = new SpokenText();
  private head: Playhead | null = null;
  private timer = 0;

  /** `tell` gets the words that are heard, `coming` those that are known and not heard yet. */
  constructor(
    private readonly tell: (item: string, text: string) => void,
    private readonly coming: (item: string, text: string) => void = () => undefined,
  ) {}

  /** An answer begins; its sound is heard from its beginning. */
  begin(item: string): void {
    this.flush();
    this.item = item;
  }

  text(item: string, delta: string): void {
    if (item !== this.item) return this.tell(item, delta);
    this.words.append(delta);
    if (this.head !== null) this.advance();
    this.coming(item, this.words.coming);
  }

  mark(item: string, marks: readonly Mark[]): void {
    if (item !== this.item) return;
    if (this.head === null && !this.words.aligned) this.timer = setTimeout(() => this.flush(), UNHEARD_MS) as unknown as number;
    this.words.mark(marks);
    if (this.head !== null) this.advance();
  }

  /** The sound has come so far. One that has no marks by now will have none: there is nothing to keep step with. */
  played(head: Playhead): void {
    if (this.item === null) return;
    if (!this.words.aligned && head.ms > UNMARKED_MS) return this.flush();
    this.head = head;
    this.advance();
  }

  /** The sound is over, or its place is unknown: tell what is left, and what still comes at once. */
  flush(): void {
    const rest = this.words.rest();
    if (this.item !== null && rest) {
      this.tell(this.item, rest);
      this.coming(this.item, "");
    }
    this.drop();
  }

  /** Nothing more is heard: what is left was not said. */
  drop(): void {
    clearTimeout(this.timer);
    this.item = this.head = null;
    this.words = new SpokenText();
  }

  private advance(): void {
    clearTimeout(this.timer);
    if (this.head === null || this.item === null) return;
    const { ms, at_ms, until_ms } = this.head;
    const heard_ms = Math.min(until_ms, ms + performance.now() - at_ms);
    if (heard_ms < 0) return this.later(-heard_ms);
    const text = this.words.until(heard_ms);
    if (text) {
      this.tell(this.item, text);
      this.coming(this.item, this.words.coming);
    }
    const next_ms = this.words.next_ms;
    if (next_ms !== null && next_ms <= until_ms) this.later(next_ms - heard_ms);
  }

  private later(ms: number): void {
    this.timer = setTimeout(() => this.advance(), Math.ceil(ms)) as unknown as number;
  }
}
