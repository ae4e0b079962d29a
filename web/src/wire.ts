/** The events of the OpenAI Realtime GA protocol that the page reads, with the fields it reads of them. */

export type ServerEvent =
  | { type: "session.created"; session: Session }
  | { type: "session.updated"; session: Session }
  | { type: "input_audio_buffer.speech_started"; item_id: string }
  | { type: "input_audio_buffer.speech_stopped"; item_id: string }
  | { type: "input_audio_buffer.committed"; item_id: string }
  | { type: "conversation.item.truncated"; item_id: string; parley?: { heard_text?: string } }
  | { type: "conversation.item.input_audio_transcription.delta"; item_id: string; delta: string }
  | { type: "conversation.item.input_audio_transcription.completed"; item_id: string; transcript: string }
  | { type: "conversation.item.input_audio_transcription.failed"; item_id: string }
  | { type: "response.created"; response: Response }
  | { type: "response.output_item.added"; item: OutputItem }
  | { type: "response.output_audio.delta"; item_id: string; delta: string }
  | { type: "response.output_audio_transcript.delta"; item_id: string; delta: string }
  | { type: "response.output_text.delta"; item_id: string; delta: string }
  | { type: "response.done"; response: Response }
  | { type: "output_audio_buffer.started" }
  | { type: "output_audio_buffer.stopped" }
  | { type: "output_audio_buffer.cleared" }
  | { type: "parley.queue.updated"; position: number }
  | { type: "error"; error: { message: string; code?: string | null; event_id?: string | null } };

export type ClientEvent = { readonly type: string; readonly [field: string]: unknown };

export interface Session {
  /** Parley's own, absent from other servers. */
  readonly parley?: {
    readonly model?: string;
    readonly voice?: string;
    readonly voices?: readonly string[];
    readonly resume_token?: string;
  };
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
}

/** Where the server spent the time to its first audio, in ms; `ahead_ms` of it passed before the user's turn was over. */
export interface Ledger {
  readonly ttfa_ms: number;
  readonly terms_ms: Readonly<Record<string, number>>;
  readonly ahead_ms?: number;
}
