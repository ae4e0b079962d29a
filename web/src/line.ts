/** A way to the server that is open: events both ways, the microphone there, the answer's sound here. */

import type { Camera } from "./camera";
import type { Microphone } from "./microphone";
import type { Problem } from "./problem";
import type { Playhead } from "./subtitles";
import type { ClientEvent, ServerEvent } from "./wire";

export type LineKind = "webrtc" | "websocket";

/** The server's address, and the key to it. */
export interface Place {
  /** The server's root, with a slash at its end. */
  readonly server: URL;
  readonly key: string | null;
  readonly model: string | null;
}

export function isLoopback({ hostname }: URL): boolean {
  return /^(localhost|127\..*|\[::1\])$/.test(hostname);
}

/** Sound that has left the queue of an answer's item is heard, in ms. */
export interface Heard {
  readonly item: string;
  readonly ms: number;
}

export interface LineEvents {
  received(event: ServerEvent): void;
  sent(event: ClientEvent): void;
  /** The server is full, and this is one's place in the line: 1 is next. */
  queued(position: number): void;
  /** It ended, not by `close`. */
  closed(problem: Problem): void;
  /** `playing` changed. */
  changed(): void;
  /** Sound began to be audible at `at_ms` on performance.now()'s clock; `item` where the line knows whose it is. */
  audible(at_ms: number, item: string | null): void;
  /** So much of an answer is heard now; `item` where the line knows whose. Null: from here on it can't say how much. */
  played(item: string | null, head: Playhead | null): void;
  trouble(problem: Problem): void;
}

export interface Line {
  readonly kind: LineKind;
  /** Whether it goes on with the session of the line before. */
  readonly resumed: boolean;
  /** The largest event that can be sent. */
  readonly maxBytes: number;
  /** Whether an answer sounds, or waits to. */
  readonly playing: boolean;
  /** Whether the camera's pictures travel by themselves; else the user's turn begins with one, as an item. */
  readonly takesVideo: boolean;
  /** Whether it tells how much of an answer is heard. */
  readonly tellsPlayed: boolean;
  /**
   * Take the loudspeaker, and tell what has come: whoever opened it is ready now. A line that was given up before it
   * was open never begins.
   */
  begin(): void;
  /** Peak of the answer at this moment, 0 to 1. */
  level(): number;
  /** Whether there was an open line to take it. */
  send(event: ClientEvent): boolean;
  /** Send this microphone from now on; null: none. */
  hear(microphone: Microphone | null): Promise<void>;
  /** Show this camera from now on; null: none. */
  see(camera: Camera | null): Promise<void>;
  /** Cut the sound now, and let none through until `resume`. What was heard, where only this side knows. */
  silence(): Promise<Heard | null>;
  /** The next answer may sound. */
  resume(): void;
  close(): void;
}
