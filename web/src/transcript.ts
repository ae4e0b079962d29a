/** A conversation taken away: copied, saved as text, its last answer saved as sound. Knows no element of a page. */

import type { Said } from "./captions";

const RATE_HZ = 24_000;
const HEADER_BYTES = 44;

/** The conversation as Markdown: a paragraph an utterance. */
export function markdownOf(said: readonly Said[]): string {
  return said.map((one) => (one.who === null ? `*${one.text}*` : `**${one.name}:** ${heardOf(one)}`) + "\n").join("\n");
}

/** The part of an interrupted answer that was heard. */
export function heardOf({ text, unheard }: Said): string {
  return unheard === "" ? text : `${text.slice(0, -unheard.length).trimEnd()} …`;
}

/** Sound as it came over the wire (base64 of 16 bits, 24 kHz, mono), as a WAV file. */
export function wavOf(pieces: readonly string[]): Blob {
  const sound = bytesOf(pieces);
  return new Blob([header(sound.length), sound], { type: "audio/wav" });
}

/** The same sound as samples in [-1, 1]. */
export function samplesOf(pieces: readonly string[]): Float32Array<ArrayBuffer> {
  const bytes = bytesOf(pieces);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, n) => view.getInt16(2 * n, true) / 32768);
}

function bytesOf(pieces: readonly string[]): Uint8Array<ArrayBuffer> {
  const parts = pieces.map((piece) => Uint8Array.from(atob(piece), (char) => char.charCodeAt(0)));
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** RIFF, one chunk of format and one of data. */
function header(bytes: number): ArrayBuffer {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES));
  const name = (at: number, four: string) => [...four].forEach((char, i) => view.setUint8(at + i, char.charCodeAt(0)));
  name(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + bytes, true);
  name(8, "WAVE");
  name(12, "fmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // one channel
  view.setUint32(24, RATE_HZ, true);
  view.setUint32(28, 2 * RATE_HZ, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  name(36, "data");
  view.setUint32(40, bytes, true);
  return view.buffer;
}
