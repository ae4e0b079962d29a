/** The server events of the OpenAI Realtime GA protocol that the page reads, with the fields it reads of them. */

export type ServerEvent =
  | { type: "session.created" }
  | { type: "session.updated" }
  | { type: "input_audio_buffer.speech_started"; item_id: string }
  | { type: "input_audio_buffer.speech_stopped"; item_id: string }
  | { type: "conversation.item.input_audio_transcription.delta"; item_id: string; delta: string }
  | { type: "conversation.item.input_audio_transcription.completed"; item_id: string; transcript: string }
  | { type: "conversation.item.input_audio_transcription.failed"; item_id: string }
  | { type: "response.created"; response: Response }
  | { type: "response.output_audio.delta"; item_id: string; delta: string }
  | { type: "response.output_audio_transcript.delta"; item_id: string; delta: string }
  | { type: "response.output_text.delta"; item_id: string; delta: string }
  | { type: "response.done"; response: Response }
  | { type: "error"; error: { message: string; code?: string | null; event_id?: string | null } };

export interface Response {
  readonly id: string;
  readonly status: "in_progress" | "completed" | "cancelled" | "failed" | "incomplete";
  readonly status_details?: { readonly error?: { readonly message?: string } | null } | null;
  readonly output?: readonly OutputItem[];
  /** Parley's own, absent from other servers. */
  readonly parley?: { readonly ledger?: Ledger };
}

export interface OutputItem {
  readonly type: string;
  readonly name?: string;
  readonly call_id?: string;
}

/** Where the server spent the time to its first audio, in ms. */
export interface Ledger {
  readonly ttfa_ms: number;
  readonly terms_ms: Readonly<Record<string, number>>;
}
