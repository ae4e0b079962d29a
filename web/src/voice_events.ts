/** The events of a VoiceClient, and its options. */

import type { Wanted } from "./dial";
import type { FirstSound } from "./first_sound";
import type { LineKind } from "./line";
import type { Problem } from "./problem";
import type { Eagerness } from "./session";
import type { ToolCall } from "./tools";
import type { ClientEvent, ServerEvent, Session } from "./wire";

export type VoiceState =
  | "idle"
  | "connecting"
  | "lost" // trying again
  | "waiting" // in line, since the server is full
  | "ready" // connected; the microphone is off, or waits for the key
  | "muted"
  | "listening"
  | "hearing" // the user speaks
  | "thinking"
  | "speaking";

export type Who = "user" | "answer";

export interface VoiceEvents {
  /** The state, a device or anything else that a getter shows changed. */
  change(): void;
  /**
   * `final`: all of it, once (of a user, empty: nothing was understood; of an interrupted answer: what was heard), else
   * the next piece. An answer's words come as they are heard, where the server tells how far its voice is; else as they
   * are made.
   */
  text(who: Who, item: string, text: string, final: boolean): void;
  /** Words of an answer that are known and not heard yet: all of them, after each change. */
  coming(item: string, text: string): void;
  /** The texts that wait for the server; none: all of them went out. */
  pending(texts: readonly string[]): void;
  /** A tool of this page is called, or its call ended. */
  tool(call: ToolCall): void;
  /** All of the user's words so far; a later event may take words back, and `text` has the last word. */
  hearing(item: string, text: string): void;
  /** The user began to speak; with push to talk: spoke. */
  spoke(item: string): void;
  answerDone(): void;
  interrupted(item: string): void;
  /** The words of an interrupted answer that were heard; null: the server does not say. */
  cut(item: string, heard: string | null): void;
  firstSound(figure: FirstSound): void;
  /** The picture that the model is shown with the user's item, as a data URI. */
  picture(picture: string, item: string): void;
  /** The problem in the way, or null when the last one is over; `retry_ms`: when it is tried again by itself. */
  problem(problem: Problem | null, retry_ms: number | null): void;
  /** A line opened: a call or a socket, why it is no call, and whether it goes on with the session of the line before. */
  line(kind: LineKind, fellBack: Problem | null, resumed: boolean): void;
  session(session: Session): void;
  /** The user's place in the line of a full server: 1 is next. */
  queued(position: number): void;
  /** Everything on the wire, for those who want to look. */
  event(direction: "in" | "out", event: ServerEvent | ClientEvent): void;
}

export interface VoiceOptions {
  /** The server's root; by default where the library came from. */
  readonly server?: string | URL;
  /** A function is asked anew for each connection: `keyFrom("/voice-key")` gets a short-lived key from your own server. */
  readonly key?: Key;
  readonly model?: string | null;
  /** "webrtc", and "auto" to another machine: a call, and where none comes about a WebSocket. */
  readonly transport?: Wanted;
  /** The microphone to open; by default the browser's choice. */
  readonly microphone?: string | null;
  /** Plays the answer. */
  readonly audio?: HTMLAudioElement;
  /** The voice that answers: one of the server's. */
  readonly voice?: string | null;
  /** The haste with which a pause ends the user's turn; `auto` by default. */
  readonly eagerness?: Eagerness;
  /** The model's instructions, in plain words. */
  readonly instructions?: string | null;
  /** More of the session's settings, in the protocol's words, laid over the library's own. */
  readonly session?: SessionSettings;
}

/** The key to a server; null: it asks for none. */
export type Key = string | null | (() => string | null | Promise<string | null>);

/** Settings of a session, in the protocol's words: those that are asked for most; the server knows others. */
export interface SessionSettings {
  readonly instructions?: string;
  readonly output_modalities?: readonly ("audio" | "text")[];
  readonly max_output_tokens?: number | "inf";
  readonly temperature?: number;
  readonly tool_choice?: "auto" | "none" | "required" | { readonly [field: string]: unknown };
  readonly tools?: readonly object[];
  readonly audio?: {
    readonly input?: {
      readonly noise_reduction?: { readonly type: "near_field" | "far_field" } | null;
      readonly transcription?: { readonly model?: string; readonly language?: string; readonly prompt?: string } | null;
      readonly turn_detection?: { readonly type: "semantic_vad" | "server_vad"; readonly [field: string]: unknown } | null;
      readonly [field: string]: unknown;
    };
    readonly output?: { readonly voice?: string; readonly speed?: number; readonly [field: string]: unknown };
  };
  readonly [field: string]: unknown;
}
