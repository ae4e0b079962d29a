/**
 * The words of an answer that its voice has reached: text and marks go in, words come out as the sound is heard.
 *
 * Sans-I/O: `audio_ms` is a place in the item's sound. A word comes out whole, as its sound begins.
 */

import type { Mark } from "./wire";

const SPACE = /\s/u;
const ALONE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u; // scripts that put no space between words

export class SpokenText {
  private readonly letters: string[] = []; // code points, which marks count
  private readonly marks: Mark[] = []; // not reached yet
  private spoken = 0;
  private told = 0; // letters that came out
  private marked = false;

  /** Whether the server says where the voice is. */
  get aligned(): boolean {
    return this.marked;
  }

  append(text: string): void {
    this.letters.push(...text);
  }

  mark(marks: readonly Mark[]): void {
    this.marked = true;
    this.marks.push(...marks);
  }

  /** The words, of those that did not come out yet, whose sound has begun. */
  until(audio_ms: number): string {
    while (this.marks.length > 0 && this.marks[0]![0] <= audio_ms) this.spoken = Math.max(this.spoken, this.marks.shift()![1]);
    return this.take(this.endOfWord(this.spoken));
  }

  /** The place in the sound where the voice goes on in the text; null: nowhere that is known. */
  get next_ms(): number | null {
    return this.marks[0]?.[0] ?? null;
  }

  /** The letters that did not come out yet; they stay. */
  get coming(): string {
    return this.letters.slice(this.told).join("");
  }

  /** All that did not come out yet. */
  rest(): string {
    return this.take(this.letters.length);
  }

  private take(end: number): string {
    const text = this.letters.slice(this.told, end).join("");
    this.told = Math.max(this.told, end);
    return text;
  }

  private endOfWord(at: number): number {
    const { letters } = this;
    while (at < letters.length && SPACE.test(letters[at]!)) at++;
    if (at < letters.length && ALONE.test(letters[at]!)) return at + 1;
    while (at < letters.length && !SPACE.test(letters[at]!)) at++;
    return at;
  }
}
