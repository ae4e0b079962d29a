/**
 * The Realtime protocol, as a client of it: what a user does in, events out, and back.
 *
 * Keeps one response at a time, as the protocol wants: what must wait for the end of the current one is held.
 * Sans I/O: knows no line, no microphone and no page.
 */

import type { ClientEvent, Ledger, Response, ServerEvent, Session } from "./wire";

/** What happens in the conversation. Items are the protocol's ids. */
export interface ClientEvents {
  send(event: ClientEvent): boolean;
  session(session: Session): void;
  ready(): void;
  speechStarted(item: string): void;
  speechStopped(): void;
  /** The turn that was to be answered is empty. */
  nothingSaid(): void;
  /** What the user said; `final`: all of it (empty: nothing was understood), else the next piece. */
  heard(item: string, text: string, final: boolean): void;
  answerStarted(): void;
  answerItem(item: string): void;
  answerText(item: string, delta: string): void;
  /** The conversation keeps of this answer only what was heard: `text`, where the server says it. */
  cut(item: string, text: string | null): void;
  /** The answer is complete; `answering` already speaks of the next one. */
  answerDone(outcome: Outcome): void;
  refused(message: string): void;
}

export interface Outcome {
  readonly status: Response["status"];
  readonly error: string | null;
  readonly ledger: Ledger | null;
}

/** What a user says by other means than the microphone. */
export interface Saying {
  readonly text?: string;
  /** A picture as a data URI. */
  readonly picture?: string;
}

const MAX_HELD = 32; // wishes of one user during one answer
const NOTHING_SAID = "input_audio_buffer_commit_empty";
const HARMLESS = new Set(["response_cancel_not_active"]); // the answer ended while the wish to stop it was on its way

export class RealtimeClient {
  private answer: "none" | "asked" | "under way" = "none";
  private silenced = false; // the current answer was interrupted: what still comes of it is not for the user
  private held: ClientEvent[] = [];
  private asked = ""; // event id of the last response.create
  private committing = false; // a turn that the user marked is to be answered once the server has it
  private count = 0;

  constructor(private readonly events: ClientEvents) {}

  /** Whether an answer was asked for and is not complete. */
  get answering(): boolean {
    return this.answer !== "none";
  }

  /** Settings of the session; `ready` follows. */
  configure(session: object): boolean {
    return this.events.send({ type: "session.update", session: { type: "realtime", ...session } });
  }

  /** Add what the user says; an answer under way is cancelled first. Returns its item id. */
  say(saying: Saying): string {
    const id = this.newId("item");
    this.cancel();
    const content = [
      ...(saying.picture === undefined ? [] : [{ type: "input_image", image_url: saying.picture }]),
      ...(saying.text === undefined ? [] : [{ type: "input_text", text: saying.text }]),
    ];
    this.whenFree({ type: "conversation.item.create", item: { id, type: "message", role: "user", content } });
    return id;
  }

  /** What the user sees while speaking: beside the turn, at once. */
  show(picture: string): void {
    const content = [{ type: "input_image", image_url: picture }];
    this.events.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  }

  respond(): void {
    this.whenFree({ type: "response.create", event_id: this.newId("ask") });
  }

  /** Forget what the microphone gave so far: a turn begins. */
  beginTurn(): void {
    this.cancel();
    this.events.send({ type: "input_audio_buffer.clear" });
  }

  /** The turn is over: answer it, if anything was said. */
  commitTurn(): void {
    this.committing = true;
    this.whenFree({ type: "input_audio_buffer.commit" });
  }

  /** End the answer under way, if there is one. */
  cancel(): void {
    if (!this.answering || this.silenced) return;
    this.silenced = true;
    this.events.send({ type: "response.cancel" });
  }

  /** Tell the server how much of an answer was heard, so that the conversation goes on from there. */
  truncate(item: string, audio_end_ms: number): void {
    this.whenFree({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms });
  }

  /** The line is gone: nothing is under way any more. */
  reset(): void {
    this.held = [];
    this.committing = false;
    this.free();
  }

  receive(event: ServerEvent): void {
    switch (event.type) {
      case "session.created":
        return this.events.session(event.session);
      case "session.updated":
        this.events.session(event.session);
        return this.events.ready();
      case "input_audio_buffer.speech_started":
        this.silenced ||= this.answer === "under way"; // the server cancels its answer by itself: interrupt_response
        return this.events.speechStarted(event.item_id);
      case "input_audio_buffer.committed":
        return this.committed();
      case "input_audio_buffer.speech_stopped":
        return this.events.speechStopped();
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

  private committed(): void {
    if (this.committing) this.respond();
    this.committing = false;
  }

  private receiveAnswer(event: ServerEvent): void {
    switch (event.type) {
      case "response.created":
        this.answer = "under way";
        return this.silenced ? undefined : this.events.answerStarted();
      case "response.output_item.added":
        this.goOn();
        if (!this.silenced && event.item.type === "message") this.events.answerItem(event.item.id);
        return;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.goOn();
        if (!this.silenced) this.events.answerText(event.item_id, event.delta);
        return;
      case "conversation.item.truncated":
        return this.events.cut(event.item_id, event.parley?.heard_text ?? null);
      case "response.done":
        return this.done(event.response);
      default: // the protocol has many more events, none of which is shown
    }
  }

  /** Of a session that is gone on with, the answer under way was begun before. */
  private goOn(): void {
    if (this.answer === "none") this.answer = "under way";
  }

  /** Now, or when the response under way is done. */
  private whenFree(event: ClientEvent): void {
    if (this.held.length < MAX_HELD) this.held.push(event);
    this.release();
  }

  private release(): void {
    while (!this.answering) {
      const event = this.held.shift();
      if (event === undefined) return;
      if (this.events.send(event) && event.type === "response.create") {
        this.answer = "asked";
        this.asked = event["event_id"] as string;
      }
    }
  }

  private free(): void {
    this.answer = "none";
    this.silenced = false;
    this.release();
  }

  private done(response: Response): void {
    const error = response.status === "failed" ? (response.status_details?.error?.message ?? "unknown reason") : null;
    this.free();
    this.events.answerDone({ status: response.status, error, ledger: response.parley?.ledger ?? null });
  }

  private refused(error: { message: string; code?: string | null; event_id?: string | null }): void {
    if (error.event_id === this.asked && this.answer === "asked") this.free();
    if (error.code === NOTHING_SAID && this.committing) {
      this.committing = false;
      return this.events.nothingSaid();
    }
    if (!error.code || !HARMLESS.has(error.code)) this.events.refused(error.message);
  }

  private newId(kind: string): string {
    return `${kind}_page_${++this.count}_${Math.random().toString(36).slice(2, 10)}`;
  }
}
