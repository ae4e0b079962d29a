/**
 * One conversation with a Realtime server: what a user does in, protocol events out, and back.
 *
 * Keeps one response at a time, as the protocol wants: what must wait for the end of the current one is held.
 * Knows no microphone, no loudspeaker and no page.
 */

import { Connection } from "./connection";
import { fromBase64, toBase64 } from "./pcm";
import type { Ledger, Response, ServerEvent } from "./wire";

/** What happens in the conversation. Items are the protocol's ids. */
export interface ClientEvents {
  connecting(): void;
  ready(): void;
  /** `retry_ms`: when the next attempt comes; null: none will. */
  lost(retry_ms: number | null, reason: string): void;
  speechStarted(item: string): void;
  speechStopped(item: string): void;
  /** What the user said; `final`: all of it (empty: nothing was understood), else the next piece. */
  heard(item: string, text: string, final: boolean): void;
  answerStarted(): void;
  answerAudio(item: string, pcm: Int16Array<ArrayBuffer>): void;
  answerText(item: string, delta: string): void;
  /** The answer is complete; `answering` already speaks of the next one. */
  answerDone(outcome: Outcome): void;
  refused(message: string): void;
}

export interface Outcome {
  readonly status: Response["status"];
  readonly error: string | null;
  readonly ledger: Ledger | null;
}

const SESSION = {
  type: "realtime",
  output_modalities: ["audio"],
  audio: {
    input: {
      transcription: { model: "default" },
      turn_detection: { type: "server_vad", create_response: true, interrupt_response: true },
    },
  },
};

const MAX_PENDING_BYTES = 320_000; // 5 s of microphone in base64: later sound is worth nothing by the time it arrives
const MAX_HELD = 32;
const HARMLESS = new Set(["response_cancel_not_active"]); // the answer ended while the wish to stop it was on its way

type Wish = { type: string; [field: string]: unknown };

export class RealtimeClient {
  private readonly connection: Connection;
  private answer: "none" | "asked" | "under way" = "none";
  private silenced = false; // the current answer was interrupted: what still comes of it is not for the user
  private held: Wish[] = [];
  private asked = ""; // event id of the last response.create
  private count = 0;

  constructor(
    url: string,
    private readonly events: ClientEvents,
  ) {
    this.connection = new Connection(url, {
      connecting: () => events.connecting(),
      opened: () => this.send({ type: "session.update", session: SESSION }),
      received: (text) => this.receive(JSON.parse(text) as ServerEvent),
      lost: (retry_ms, reason) => this.lost(retry_ms, reason),
    });
  }

  /** Whether an answer was asked for and is not complete. */
  get answering(): boolean {
    return this.answer !== "none";
  }

  connect(): void {
    this.connection.open();
  }

  /** Ask a typed question; an answer under way is cancelled first. Returns the question's item id. */
  ask(text: string): string {
    const id = this.newId("item");
    this.cancel();
    const content = [{ type: "input_text", text }];
    this.whenFree({ type: "conversation.item.create", item: { id, type: "message", role: "user", content } });
    this.whenFree({ type: "response.create", event_id: this.newId("ask") });
    return id;
  }

  /** The next piece of the microphone. */
  hear(pcm: Int16Array): void {
    if (this.connection.pendingBytes > MAX_PENDING_BYTES) return;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
  }

  /** End the answer under way, if there is one. */
  cancel(): void {
    if (!this.answering || this.silenced) return;
    this.silenced = true;
    this.send({ type: "response.cancel" });
  }

  /** Tell the server how much of an answer was heard, so that the conversation goes on from there. */
  truncate(item: string, audio_end_ms: number): void {
    this.whenFree({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms });
  }

  private send(wish: Wish): boolean {
    return this.connection.send(JSON.stringify(wish));
  }

  /** Now, or when the response under way is done. */
  private whenFree(wish: Wish): void {
    if (this.held.length < MAX_HELD) this.held.push(wish);
    this.release();
  }

  private release(): void {
    while (!this.answering) {
      const wish = this.held.shift();
      if (wish === undefined) return;
      if (this.send(wish) && wish.type === "response.create") {
        this.answer = "asked";
        this.asked = wish["event_id"] as string;
      }
    }
  }

  private free(): void {
    this.answer = "none";
    this.silenced = false;
    this.release();
  }

  private lost(retry_ms: number | null, reason: string): void {
    this.held = [];
    this.free();
    this.events.lost(retry_ms, reason);
  }

  private receive(event: ServerEvent): void {
    switch (event.type) {
      case "session.updated":
        return this.events.ready();
      case "input_audio_buffer.speech_started":
        this.silenced ||= this.answer === "under way"; // the server cancels its answer by itself: interrupt_response
        return this.events.speechStarted(event.item_id);
      case "input_audio_buffer.speech_stopped":
        return this.events.speechStopped(event.item_id);
      case "conversation.item.input_audio_transcription.delta":
        return this.events.heard(event.item_id, event.delta, false);
      case "conversation.item.input_audio_transcription.completed":
        return this.events.heard(event.item_id, event.transcript, true);
      case "conversation.item.input_audio_transcription.failed":
        return this.events.heard(event.item_id, "", true);
      case "error":
        return this.refused(event.error);
      default:
        return this.receiveAnswer(event);
    }
  }

  private receiveAnswer(event: ServerEvent): void {
    switch (event.type) {
      case "response.created":
        this.answer = "under way";
        return this.events.answerStarted();
      case "response.output_audio.delta":
        if (!this.silenced) this.events.answerAudio(event.item_id, fromBase64(event.delta));
        return;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        if (!this.silenced) this.events.answerText(event.item_id, event.delta);
        return;
      case "response.done":
        return this.done(event.response);
      default: // the protocol has many more events, none of which this page shows
    }
  }

  private done(response: Response): void {
    const error = response.status === "failed" ? (response.status_details?.error?.message ?? "unknown reason") : null;
    this.free();
    this.events.answerDone({ status: response.status, error, ledger: response.parley?.ledger ?? null });
  }

  private refused(error: { message: string; code?: string | null; event_id?: string | null }): void {
    if (error.code && HARMLESS.has(error.code)) return;
    if (error.event_id === this.asked && this.answer === "asked") this.free();
    this.events.refused(error.message);
  }

  private newId(kind: string): string {
    return `${kind}_page_${++this.count}_${Math.random().toString(36).slice(2, 10)}`;
  }
}
