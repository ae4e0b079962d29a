/** The events of the OpenAI Realtime GA protocol that the page reads, with the fields it reads of them. */

export type ServerEvent =
  | { type: "session.created"; session: Session }
  | { type: "session.updated"; session: Session }
  | { type: "input_audio_buffer.speech_started"; item_id: string }
  | { type: "input_audio_buffer.speech_stopped"; item_id: string; parley?: { turn_ms?: number } }
  | { type: "input_audio_buffer.committed"; item_id: string }
  | { type: "conversation.item.truncated"; item_id: string; parley?: { heard_text?: string } }
  | { type: "conversation.item.input_audio_transcription.delta"; item_id: string; delta: string }
  | { type: "conversation.item.input_audio_transcription.completed"; item_id: string; transcript: string }
  | { type: "conversation.item.input_audio_transcription.failed"; item_id: string }
  | { type: "parley.input_audio_transcription.partial"; item_id: string; transcript: string }
  | { type: "response.created"; response: Response }
  | { type: "response.output_item.added"; item: OutputItem }
  | { type: "response.output_item.done"; item: OutputItem }
  | { type: "response.output_audio.delta"; item_id: string; delta: string }
  | { type: "response.output_audio_transcript.delta"; item_id: string; delta: string }
  | { type: "response.output_text.delta"; item_id: string; delta: string }
  | { type: "parley.output_audio.alignment"; item_id: string; marks: readonly Mark[] }
  | { type: "parley.output_audio.paused" }
  | { type: "parley.output_audio.resumed" }
  | { type: "response.done"; response: Response }
  | { type: "output_audio_buffer.started" }
  | { type: "output_audio_buffer.stopped" }
  | { type: "output_audio_buffer.cleared" }
  | { type: "parley.queue.updated"; position: number }
  | { type: "error"; error: Refused };

export type ClientEvent = { readonly type: string; readonly [field: string]: unknown };

/** After so many ms of an item's sound, so many characters (code points) of its transcript have been spoken. */
export type Mark = readonly [audio_ms: number, text_end: number];

export interface Refused {
  readonly message: string;
  readonly code?: string | null;
  /** The client's event that was refused. */
  readonly event_id?: string | null;
}

export interface Session {
  readonly audio?: { readonly input?: { readonly turn_detection?: TurnDetection | null } };
  /** Parley's own, absent from other servers. */
  readonly parley?: Loaded & {
    readonly voice?: string;
    readonly resume_token?: string;
    /** Whether it tells how far the voice is in an answer's text. */
    readonly alignment?: boolean;
  };
}

/** The server's part in the turns that it finds; both by default. */
export interface TurnDetection {
  /** Whether it answers a turn by itself. */
  readonly create_response?: boolean;
  /** Whether a user who speaks over an answer ends it. */
  readonly interrupt_response?: boolean;
}

/** The model that is loaded at the server, as far as it says. */
export interface Loaded {
  readonly model?: string;
  /** The names of all models of the server; the first one is its default. */
  readonly models?: readonly string[];
  readonly voices?: readonly string[];
  readonly voice_details?: readonly VoiceDetail[];
  /** Questions that the model understands. */
  readonly examples?: readonly string[];
  /** False if speech is not understood, so that users should type. */
  readonly understands_speech?: boolean;
  /** The kinds of input and output: "audio", "image", "speech", "text", "tools". */
  readonly abilities?: readonly string[];
  /** BCP 47 tags. */
  readonly languages?: readonly string[];
  /** One sentence for each thing that people should know before they talk to it. */
  readonly notes?: readonly string[];
  /** Whether a session can remember facts about its user. */
  readonly memory_available?: boolean;
}

export interface VoiceDetail {
  readonly id: string;
  readonly name: string;
  /** A BCP 47 tag. */
  readonly language: string;
}

export interface Response {
  readonly id: string;
  readonly status: "in_progress" | "completed" | "cancelled" | "failed" | "incomplete";
  readonly status_details?: { readonly error?: { readonly message?: string } | null } | null;
  readonly parley?: { readonly ledger?: Ledger };
}

export interface OutputItem {
  readonly id: string;
  readonly type: string;
  readonly status?: string;
}

/** An output item: the model calls a function of the client's. */
export interface FunctionCall extends OutputItem {
  readonly type: "function_call";
  readonly name: string;
  readonly call_id: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
}

/** The parts of the server's time to its first audio, in ms; `ahead_ms` of it passed before the user's turn was over. */
export interface Ledger {
  readonly ttfa_ms: number;
  readonly terms_ms: Readonly<Record<string, number>>;
  readonly ahead_ms?: number;
  /** The silence after the user's last word that ended the turn; absent where nobody spoke, or a key said the end. */
  readonly turn_ms?: number;
}
