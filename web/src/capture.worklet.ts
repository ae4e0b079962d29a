/** The microphone's samples, on the audio thread: to 24 kHz, to 16 bits, posted in pieces of 20 ms. */

import { quantize, RATE_HZ } from "./pcm";
import { Resampler } from "./resample";

const PIECE_SAMPLES = 0.02 * RATE_HZ;

class Capture extends AudioWorkletProcessor {
  private readonly resampler = new Resampler(sampleRate, RATE_HZ);
  private piece = new Int16Array(PIECE_SAMPLES);
  private filled = 0;

  process(inputs: Float32Array[][]): boolean {
    const samples = inputs[0]?.[0]; // absent while the source is not delivering
    if (samples !== undefined) for (const sample of this.resampler.push(samples)) this.take(sample);
    return true;
  }

  private take(sample: number): void {
    this.piece[this.filled++] = quantize(sample);
    if (this.filled < PIECE_SAMPLES) return;
    this.port.postMessage(this.piece, [this.piece.buffer]);
    this.piece = new Int16Array(PIECE_SAMPLES);
    this.filled = 0;
  }
}

registerProcessor("capture", Capture);
