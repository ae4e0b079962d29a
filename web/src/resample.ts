/**
 * Changes a sample rate while the sound streams by: a polyphase windowed-sinc filter.
 *
 * The output does not depend on how the input is cut into pieces. The delay is half a kernel, under 1 ms
 * from 48 kHz. Knows nothing of audio nodes.
 */

const ZERO_CROSSINGS = 16; // on each side of the kernel's centre
const PASS_BAND = 0.94; // of the lower rate's half: leaves room for the filter's slope

export class Resampler {
  private readonly up: number;
  private readonly down: number;
  private readonly half: number;
  private readonly kernels: Float32Array[];
  private held: Float32Array; // input from the next output's first tap on
  private phase = 0; // the next output lies phase/up input samples after tap number half-1

  constructor(fromHz: number, toHz: number) {
    const shared = gcd(fromHz, toHz);
    this.up = toHz / shared;
    this.down = fromHz / shared;
    const cutoff = PASS_BAND * Math.min(1, toHz / fromHz);
    this.half = Math.ceil(ZERO_CROSSINGS / cutoff);
    this.kernels = Array.from({ length: this.up }, (_, phase) => kernel(phase / this.up, this.half, cutoff));
    this.held = new Float32Array(this.half - 1);
  }

  /** All the output samples that the input up to here settles. */
  push(input: Float32Array): Float32Array {
    const held = joined(this.held, input);
    const output = new Float32Array(Math.ceil(((held.length + 1) * this.up) / this.down));
    let made = 0;
    let start = 0;
    while (start + 2 * this.half <= held.length) {
      output[made++] = dot(this.kernels[this.phase]!, held, start);
      const ahead = this.phase + this.down;
      start += Math.floor(ahead / this.up);
      this.phase = ahead % this.up;
    }
    this.held = held.slice(start);
    return output.subarray(0, made);
  }
}

/** Weights of the 2·half input samples around a point `fraction` of a sample after tap number half-1; their sum is 1. */
function kernel(fraction: number, half: number, cutoff: number): Float32Array {
  const taps = Float64Array.from({ length: 2 * half }, (_, tap) => {
    const distance = tap - (half - 1) - fraction;
    return sinc(distance * cutoff) * hann(distance / half);
  });
  const sum = taps.reduce((total, tap) => total + tap, 0);
  return Float32Array.from(taps, (tap) => tap / sum);
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function hann(x: number): number {
  return Math.abs(x) >= 1 ? 0 : 0.5 + 0.5 * Math.cos(Math.PI * x);
}

function dot(weights: Float32Array, samples: Float32Array, start: number): number {
  let sum = 0;
  for (let tap = 0; tap < weights.length; tap++) sum += weights[tap]! * samples[start + tap]!;
  return sum;
}

function joined(first: Float32Array, second: Float32Array): Float32Array {
  const both = new Float32Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}
