/**
 * Samples waiting to be played, in order, and how many of the current answer have been: the truth about what was heard.
 *
 * Knows nothing of audio nodes. Bounded: what does not fit is refused.
 */

import { RATE_HZ } from "./pcm";

export const CAPACITY = 300 * RATE_HZ; // samples; a server that does not pace its answers may send a long one at once

export interface Position {
  readonly item: string;
  readonly samples: number; // of this item, read so far
}

interface Piece {
  readonly item: string;
  readonly pcm: Int16Array;
}

export class SampleQueue {
  private readonly pieces: Piece[] = [];
  private offset = 0; // samples read of the first piece
  private size = 0;
  private at: Position | null = null;

  /** Samples not yet read. */
  get waiting(): number {
    return this.size;
  }

  /** The item that was read last; null before the first sample. */
  get position(): Position | null {
    return this.at;
  }

  /** Whether there was room; a piece is taken whole or not at all. */
  push(item: string, pcm: Int16Array): boolean {
    if (this.size + pcm.length > CAPACITY) return false;
    if (pcm.length > 0) this.pieces.push({ item, pcm });
    this.size += pcm.length;
    return true;
  }

  /** Fills the front of `out` with samples in [-1, 1); the number filled. */
  read(out: Float32Array): number {
    let filled = 0;
    while (filled < out.length && this.pieces.length > 0) {
      const { item, pcm } = this.pieces[0]!;
      const taken = Math.min(out.length - filled, pcm.length - this.offset);
      for (let i = 0; i < taken; i++) out[filled + i] = pcm[this.offset + i]! / 32768;
      filled += taken;
      this.advance(item, pcm.length, taken);
    }
    return filled;
  }

  /** Forgets what was not read. */
  clear(): void {
    this.pieces.length = 0;
    this.offset = 0;
    this.size = 0;
  }

  private advance(item: string, pieceSamples: number, taken: number): void {
    this.at = { item, samples: taken + (this.at?.item === item ? this.at.samples : 0) };
    this.size -= taken;
    this.offset += taken;
    if (this.offset < pieceSamples) return;
    this.pieces.shift();
    this.offset = 0;
  }
}
