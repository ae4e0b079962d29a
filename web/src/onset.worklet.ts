/** Posts when a sound begins, on the audio thread: the time of the first audible sample after a silence. */

import { AUDIBLE } from "./pcm";

const SILENCE_S = 0.3; // a pause between words is shorter

class Onset extends AudioWorkletProcessor {
  private last_s = -SILENCE_S; // when something was audible

  process(inputs: Float32Array[][]): boolean {
    const samples = inputs[0]?.[0]; // absent while the source is not delivering
    const first = samples?.findIndex((sample) => Math.abs(sample) >= AUDIBLE) ?? -1;
    if (first < 0) return true;
    if (currentTime - this.last_s >= SILENCE_S) this.port.postMessage(currentTime + first / sampleRate);
    this.last_s = currentTime;
    return true;
  }
}

registerProcessor("onset", Onset);
