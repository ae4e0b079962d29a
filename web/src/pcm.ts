/** 16-bit PCM as the Realtime protocol carries it: signed, little-endian, mono, 24 kHz, base64 in JSON. */

export const RATE_HZ = 24_000;
export const AUDIBLE = 0.01; // of full scale, -40 dB: below it a listener hears nothing begin
export const SAMPLES_PER_MS = RATE_HZ / 1000;

const BYTES_PER_CALL = 8192; // String.fromCharCode takes its bytes as arguments, and their number is limited

/** base64 of the samples' bytes. */
export function toBase64(pcm: Int16Array): string {
  const bytes = new Uint8Array(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += BYTES_PER_CALL) {
    text += String.fromCharCode(...bytes.subarray(at, at + BYTES_PER_CALL));
  }
  return btoa(text);
}

/** The samples in a base64 text; half a sample at the end is dropped. Throws a DOMException when it is not base64. */
export function fromBase64(base64: string): Int16Array<ArrayBuffer> {
  const text = atob(base64);
  const pcm = new Int16Array(text.length >> 1);
  const bytes = new Uint8Array(pcm.buffer);
  for (let at = 0; at < bytes.length; at++) bytes[at] = text.charCodeAt(at);
  return pcm;
}

/** One sample of [-1, 1] as 16 bits; what lies outside is clipped. */
export function quantize(sample: number): number {
  return Math.round(Math.max(-1, Math.min(1, sample)) * 32767);
}
