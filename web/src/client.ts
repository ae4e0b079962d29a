/**
 * The Realtime protocol, as a client of it: what a user does in, events out, and back.
 *
 * Keeps one response at a time, as the protocol wants: what must wait for the end of the current one is held.
 * Sans I/O: knows no line, no microphone and no page.
 */

import { RATE_HZ, toBase64 } from "./pcm";
import { idFor, sentenceOf, type Purpose } from "./refusals";
import type { ClientEvent, FunctionCall, Ledger, Mark, OutputItem, Refused, Response, ServerEvent, Session, TurnDetection } from "./wire";

/** The events of the conversation. Items are the protocol's ids. */
export interface ClientEvents {
  send(event: ClientEvent): boolean;
  session(session: Session): void;
  ready(): void;
  speechStarted(item: string): void;
  /** `silence_ms`: the silence that ended the turn; null: the server does not say. */
  speechStopped(silence_ms: number | null): void;
  /** The server has the turn that the user marked. */
  committed(item: string): void;
  /** The turn that was to be answered is empty. */
  nothingSaid(): void;
  /** No answer comes to what the user asked last: it was refused, or somebody else has ended it. */
  unanswered(): void;
  /** The user's words; `final`: all of them (empty: nothing was understood), else the next piece. */
  heard(item: string, text: string, final: boolean): void;
  /** The user's words so far; they may be understood otherwise yet. */
  hearing(item: string, text: string): void;
  answerStarted(): void;
  answerItem(item: string): void;
  /** `spoken`: it is the text of a sound. */
  answerText(item: string, delta: string, spoken: boolean): void;
  /** The voice's place in that text as its sound goes on. */
  answerMarks(item: string, marks: readonly Mark[]): void;
  /** The conversation keeps of this answer only what was heard: `text`, where the server says it. */
  cut(item: string, text: string | null): void;
  /** The answer is complete; `answering` already speaks of the next one. */
  answerDone(outcome: Outcome): void;
  /** The model calls a function. */
  called(call: FunctionCall): void;
  /** A sentence for the user, and the server's own for a developer. */
  refused(sentence: string, reason?: string): void;
}

export interface Outcome {
  /** Whether a spoken turn has ended since, whose answer is still to come. */
  readonly earlier: boolean;
  readonly status: Response["status"];
  readonly error: string | null;
  readonly ledger: Ledger | null;
}

/** The ways to ask without the microphone. */
export interface Saying {
  readonly text?: string;
  /** A picture as a data URI. */
  readonly picture?: string;
}

const MAX_HELD = 128; // wishes of one user during one answer
const LONGEST_PAUSE_S = 8; // that turn detection waits for: eagerness `low`
const TOO_MUCH = "Too many questions wait for the end of this answer: ask the last one again.";
const NOTHING_SAID = "input_audio_buffer_commit_empty";
const ANOTHER = "conversation_already_has_active_response";

export class RealtimeClient {
  /** Whether the user marks a turn just now: no answer begins meanwhile. */
  marking = false;
  private answer: "none" | "asked" | "under way" = "none";
  private silenced = false; // the current answer was interrupted: what still comes of it is not for the user
  private held: ClientEvent[] = [];
  private unanswered: ClientEvent[] = []; // what was sent since the last answer began: a line may have lost it
  private resumes = false; // the session goes on over another line, and has yet to say so
  private owed = false; // a turn was taken meanwhile: the next one is answered with it
  private asked: ClientEvent | null = null; // the last response.create
  private committing: string | null = null; // the commit of a turn that is to be answered once the server has it
  private turns: TurnDetection = {};
  private expected = false; // a spoken turn is over, and the answer that the server begins by itself has not begun
  private count = 0;

  constructor(private readonly events: ClientEvents) {}

  /** Whether a user who speaks over an answer ends it. */
  get interrupts(): boolean {
    return this.turns.interrupt_response !== false;
  }

  /** Whether the server answers a spoken turn by itself. */
  get answersTurns(): boolean {
    return this.turns.create_response !== false;
  }

  /** Whether the answer under way was interrupted: nothing more of it is for the user. */
  get interrupted(): boolean {
    return this.silenced;
  }

  /** Whether an answer was asked for and is not complete. */
  get answering(): boolean {
    return this.answer !== "none";
  }

  /** Settings of the session; `ready` follows. */
  configure(session: object): boolean {
    return this.events.send({ type: "session.update", event_id: this.idFor("settings"), session: { type: "realtime", ...session } });
  }

  /** Add what the user says; an answer under way is cancelled first. Returns its item id. */
  say(saying: Saying): string {
    const [id, event_id] = [this.idFor("item"), this.idFor("item")];
    this.cancel();
    const content = [
      ...(saying.picture === undefined ? [] : [{ type: "input_image", image_url: saying.picture }]),
      ...(saying.text === undefined ? [] : [{ type: "input_text", text: saying.text }]),
    ];
    this.whenFree({ type: "conversation.item.create", event_id, item: { id, type: "message", role: "user", content } });
    return id;
  }

  /** Send what the user sees while speaking: beside the turn, at once. */
  show(picture: string): void {
    const content = [{ type: "input_image", image_url: picture }];
    this.events.send({ type: "conversation.item.create", event_id: this.idFor("item"), item: { type: "message", role: "user", content } });
  }

  /** One answer to all that was said by the time it begins. */
  respond(): void {
    this.dropQuestion();
    this.whenFree({ type: "response.create", event_id: this.idFor("ask") });
  }

  /** Drops the request for an answer that waits for the end of the current one. Returns whether there was one. */
  dropQuestion(): boolean {
    const { length } = this.held;
    this.held = this.held.filter((event) => event.type !== "response.create" || isPages(event));
    return this.held.length < length;
  }

  /** The result of a function that the model called. */
  giveResult(call_id: string, output: string): void {
    const item = { id: this.idFor("item"), type: "function_call_output", call_id, output };
    this.whenFree({ type: "conversation.item.create", event_id: this.idFor("item"), item });
  }

  /** An event of the page's own; a `response.create` waits its turn. */
  pass(event: ClientEvent): void {
    if (event.type === "response.create") this.whenFree({ event_id: this.idFor("ask"), ...event });
    else this.events.send(event);
  }

  /** Nothing more comes of the turn that the server hears: give it the silence that ends one. */
  fallSilent(): void {
    this.events.send({ type: "input_audio_buffer.append", audio: toBase64(new Int16Array(LONGEST_PAUSE_S * RATE_HZ)) });
  }

  /** Forget what the microphone gave so far: a turn begins. */
  beginTurn(): void {
    this.marking = true;
    this.cancel();
    this.owed ||= this.dropQuestion(); // no answer begins meanwhile
    this.events.send({ type: "input_audio_buffer.clear" });
  }

  /** The turn is over: answer it, if anything was said. */
  commitTurn(): void {
    this.marking = false;
    this.committing = this.idFor("turn");
    this.whenFree({ type: "input_audio_buffer.commit", event_id: this.committing });
  }

  /** End the answer under way, if there is one. */
  cancel(): void {
    if (!this.answering || this.silenced) return;
    this.silenced = true;
    this.sendCancel();
  }

  /** Tell the server how much of an answer was heard, so that the conversation goes on from there. */
  truncate(item: string, audio_end_ms: number): void {
    this.whenFree({ type: "conversation.item.truncate", event_id: this.idFor("cut"), item_id: item, content_index: 0, audio_end_ms });
  }

  /** The line is gone: nothing is under way any more. */
  reset(): void {
    this.held = [];
    this.unanswered = [];
    this.resumes = this.marking = this.owed = this.expected = false;
    this.asked = this.committing = null;
    this.free();
  }

  /** The session goes on over another line: what the one before did not take is known once the session says so. */
  resumed(): void {
    this.resumes = true;
    this.marking = false;
  }

  receive(event: ServerEvent): void {
    switch (event.type) {
      case "session.created":
        return this.told(event.session);
      case "session.updated":
        this.told(event.session);
        if (this.resumes) this.askLost(); // before anything new is asked over this line
        this.events.ready();
        return this.release(); // what a lost line did not take
      case "input_audio_buffer.speech_started":
        this.silenced ||= this.interrupts && this.answer === "under way"; // the server cancels its answer by itself
        return this.events.speechStarted(event.item_id);
      case "input_audio_buffer.committed":
        return this.committed(event.item_id);
      case "input_audio_buffer.speech_stopped":
        this.expected = this.answersTurns;
        return this.events.speechStopped(event.parley?.turn_ms ?? null);
      case "conversation.item.input_audio_transcription.delta":
        return this.events.heard(event.item_id, event.delta, false);
      case "conversation.item.input_audio_transcription.completed":
        return this.events.heard(event.item_id, event.transcript, true);
      case "conversation.item.input_audio_transcription.failed":
        return this.events.heard(event.item_id, "", true);
      case "parley.input_audio_transcription.partial":
        return this.events.hearing(event.item_id, event.transcript);
      case "error":
        return this.refused(event.error);
      default:
        return this.receiveAnswer(event);
    }
  }

  private told(session: Session): void {
    this.turns = session.audio?.input?.turn_detection ?? {};
    this.events.session(session);
  }

  private committed(item: string): void {
    if (this.committing === null) return;
    this.committing = null;
    this.events.committed(item);
    if (this.marking) this.owed = true;
    else this.respond();
  }

  private receiveAnswer(event: ServerEvent): void {
    switch (event.type) {
      case "response.created":
        this.answer = "under way";
        this.unanswered = [];
        this.owed = this.expected = false;
        return this.silenced ? undefined : this.events.answerStarted();
      case "response.output_item.added":
        this.goOn();
        if (!this.silenced && event.item.type === "message") this.events.answerItem(event.item.id);
        return;
      case "response.output_item.done":
        if (!this.silenced && isCall(event.item)) this.events.called(event.item);
        return;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.goOn();
        if (!this.silenced) this.events.answerText(event.item_id, event.delta, event.type !== "response.output_text.delta");
        return;
      case "parley.output_audio.alignment":
        return this.silenced ? undefined : this.events.answerMarks(event.item_id, event.marks);
      case "conversation.item.truncated":
        return this.events.cut(event.item_id, event.parley?.heard_text ?? null);
      case "response.done":
        return this.done(event.response);
      default: // the protocol has many more events, none of which is shown
    }
  }

  /** In a resumed session, the answer under way was begun before. */
  private goOn(): void {
    if (this.answer === "none") this.answer = "under way";
  }

  /** Now, or when the response under way is done. */
  private whenFree(event: ClientEvent): void {
    if (this.held.length < MAX_HELD) this.held.push(event);
    else this.events.refused(TOO_MUCH);
    this.release();
  }

  /** In a resumed session nothing goes out until it is known what the line before did not take. */
  private release(): void {
    while (!this.answering && !this.resumes) {
      const event = this.held[0];
      if (event === undefined || !this.events.send(event)) return;
      this.held.shift();
      if (event.type === "conversation.item.create" || event.type === "response.create") this.unanswered.push(event);
      if (event.type === "response.create") {
        this.answer = "asked";
        this.asked = event;
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
    const earlier = this.expected && !this.silenced;
    const ended = response.status === "cancelled" && !this.silenced && !this.expected; // by another client of the session
    this.free();
    if (ended && !this.answering) this.events.unanswered();
    this.events.answerDone({ earlier, status: response.status, error, ledger: response.parley?.ledger ?? null });
  }

  private refused(error: Refused): void {
    const { code, event_id } = error;
    const [asked, turn] = [this.asked, this.committing];
    if (asked !== null && event_id === asked["event_id"]) this.askRefused(asked, code);
    else if (turn !== null && (event_id === turn || (!event_id && code === NOTHING_SAID))) this.turnRefused(code);
    else if (!event_id && this.expected) this.answerRefused();
    const sentence = sentenceOf(error);
    if (sentence !== null) this.events.refused(sentence, error.message);
  }

  /** That of the server's own, to a turn that it found. */
  private answerRefused(): void {
    this.expected = false;
    this.events.unanswered();
  }

  private askRefused(asked: ClientEvent, code: Refused["code"]): void {
    this.asked = null;
    if (code === ANOTHER) return this.askAgain(asked);
    if (this.answer !== "asked") return;
    this.free();
    if (!this.answering) this.events.unanswered();
  }

  private turnRefused(code: Refused["code"]): void {
    this.committing = null;
    if (this.owed) this.respond(); // to the turn before
    else if (code === NOTHING_SAID) this.events.nothingSaid();
    else this.events.unanswered();
  }

  /**
   * The server was answering what the user said: that answer gives way to the user's question, which comes behind it.
   * What the page itself asks for waits for that answer's end. Who stopped the answer wants none to the question, either.
   */
  private askAgain(asked: ClientEvent): void {
    if (this.answer === "asked") this.answer = "under way";
    if (isPages(asked) || !this.silenced) this.held.unshift(asked);
    if (!isPages(asked)) this.cancel();
    this.release();
  }

  /** The line before is gone with what was asked last: no answer to it has begun. Items that came are refused as known. */
  private askLost(): void {
    this.resumes = false;
    const turnLost = this.committing !== null && !this.held.some(({ event_id }) => event_id === this.committing);
    if (this.answer === "under way" && this.silenced) this.sendCancel(); // it may be lost, too
    const lost = this.silenced ? [] : this.unanswered;
    this.unanswered = [];
    if (this.answer === "asked") {
      this.held.unshift(...lost);
      this.free();
    }
    if (turnLost) this.turnLost(); // last: its functions' results may be answered instead
  }

  private turnLost(): void {
    this.committing = null;
    this.events.unanswered();
  }

  private sendCancel(): void {
    this.events.send({ type: "response.cancel", event_id: this.idFor("stop") });
  }

  private idFor(purpose: Purpose): string {
    return idFor(purpose, ++this.count);
  }
}

/** A call that is whole: one that was cut off has half of its arguments. */
function isCall(item: OutputItem): item is FunctionCall {
  return item.type === "function_call" && item.status !== "incomplete";
}

/** Whether the page itself has asked for this answer, in its own words. */
function isPages(asked: ClientEvent): boolean {
  return "response" in asked;
}
