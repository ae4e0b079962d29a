/**
 * The answer's samples, on the audio thread: plays the queue, and reports what was heard.
 *
 * Takes an `Order`; posts `Report`s. A flush and a pause fade over a few milliseconds, so that they do not click, and
 * count the faded samples as heard.
 */

import { AUDIBLE } from "./pcm";
import { SampleQueue, type Position } from "./queue";

const FADE_SAMPLES = 96; // 4 ms
const REPORT_EVERY = 8; // blocks of 128 samples: 43 ms

/** `pause` keeps the queue until `resume`; `flush` drops it, and ends a pause. */
export type Order = { kind: "samples"; item: string; pcm: Int16Array } | { kind: "flush" | "pause" | "resume" };

/**
 * `waiting`: samples queued and not played; `taken`: pieces received so far, so that a stale report is known as one;
 * `time_s`: of the context, when what stands at the report's `position` leaves it.
 */
export type Report =
  | { kind: "audible"; item: string; time_s: number }
  | { kind: "position"; position: Position; waiting: number; taken: number; time_s: number }
  | { kind: "paused"; position: Position; time_s: number }
  | { kind: "flushed"; position: Position | null; taken: number }
  | { kind: "full" };

class Playback extends AudioWorkletProcessor {
  private readonly queue = new SampleQueue();
  private taken = 0;
  private blocks = 0; // since it was silent
  private fading: Float32Array | null = null; // what is still to sound of a flushed or paused item
  private paused = false;
  private audible: string | null = null; // the item whose beginning was reported

  constructor() {
    super();
    this.port.onmessage = ({ data }: MessageEvent<Order>) => {
      if (data.kind === "samples") this.take(data.item, data.pcm);
      else if (data.kind === "flush") this.flush();
      else if (data.kind === "pause") this.pause();
      else this.paused = false;
    };
  }

  process(_inputs: Float32Array[][], outputs: Float32Array[][]): boolean {
    const out = outputs[0]![0]!;
    if (this.fading !== null) out.set(this.fading);
    else if (!this.paused) this.play(out);
    this.fading = null;
    return true;
  }

  private take(item: string, pcm: Int16Array): void {
    this.taken++;
    if (!this.queue.push(item, pcm)) this.report({ kind: "full" });
  }

  private play(out: Float32Array): void {
    const filled = this.queue.read(out);
    if (filled === 0) {
      this.blocks = 0;
      return;
    }
    this.notice(out);
    if (this.blocks++ % REPORT_EVERY === 0 || this.queue.waiting === 0) this.tell(currentTime + filled / sampleRate);
  }

  private tell(time_s: number): void {
    const position = this.queue.position!;
    this.report({ kind: "position", position, waiting: this.queue.waiting, taken: this.taken, time_s });
  }

  private pause(): void {
    if (!this.paused && this.queue.waiting > FADE_SAMPLES) this.fade(); // else it ends without it
    this.paused = true;
    this.blocks = 0; // the resumed sound is reported at once
    const { position } = this.queue;
    if (position !== null) this.report({ kind: "paused", position, time_s: currentTime });
  }

  private fade(): void {
    const tail = new Float32Array(FADE_SAMPLES);
    this.queue.read(tail);
    this.fading = tail.map((sample, i) => sample * (1 - i / FADE_SAMPLES));
  }

  private flush(): void {
    if (!this.paused) this.fade();
    this.paused = false;
    this.queue.clear();
    this.report({ kind: "flushed", position: this.queue.position, taken: this.taken });
  }

  private notice(out: Float32Array): void {
    const item = this.queue.position!.item;
    if (item === this.audible) return;
    const first = out.findIndex((sample) => Math.abs(sample) >= AUDIBLE);
    if (first < 0) return;
    this.audible = item;
    this.report({ kind: "audible", item, time_s: currentTime + first / sampleRate });
  }

  private report(report: Report): void {
    this.port.postMessage(report);
  }
}

registerProcessor("playback", Playback);
