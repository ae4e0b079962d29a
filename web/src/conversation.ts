/**
 * Whose turn it is: the rules between what the protocol tells, what the loudspeaker does and what the user wants.
 *
 * An interruption silences the loudspeaker first and tells the server after. Knows no device and no connection.
 */

import { AnswerTexts } from "./answer_texts";
import { RealtimeClient, type Outcome, type Saying } from "./client";
import { FirstSoundClock } from "./first_sound";
import type { Line } from "./line";
import { Problem } from "./problem";
import { Subtitles, type Playhead } from "./subtitles";
import { Tools } from "./tools";
import type { ClientEvent, ServerEvent, Session } from "./wire";
import type { VoiceEvents } from "./voice_events";

/** Tells one of VoiceClient's events. */
export type Tell = <K extends keyof VoiceEvents>(name: K, ...values: Parameters<VoiceEvents[K]>) => void;

export interface ConversationEvents {
  /** The server took the session's settings. */
  ready(): void;
  trouble(problem: Problem): void;
  speechStarted(item: string): void;
}

export class Conversation {
  line: Line | null = null;
  /** Whether the server hears the user speak. */
  userSpeaking = false;
  private overlapping = false; // the server has paused its answer, until it knows whether the user wants a turn
  private readonly clock: FirstSoundClock;
  private readonly client: RealtimeClient;
  private readonly subtitles: Subtitles;
  private readonly texts: AnswerTexts;
  /** The functions that the model may call. */
  readonly tools: Tools;
  private answerItem: string | null = null; // what the answer under way, or last complete, is called
  private aligned = false; // the server tells how far its voice is
  private complete = false; // the answer to the last turn is; what is left of it is its sound
  private shown: string | null = null; // a picture of a turn that has no name yet

  constructor(
    private readonly tell: Tell,
    private readonly events: ConversationEvents,
  ) {
    this.clock = new FirstSoundClock((figure) => tell("firstSound", figure));
    this.subtitles = new Subtitles(
      (item, text) => this.texts.piece(item, text),
      (item, text) => tell("coming", item, text),
    );
    this.texts = new AnswerTexts((item, text, final) => tell("text", "answer", item, text, final));
    this.tools = new Tools({
      changed: (call) => tell("tool", call),
      result: (call, output) => this.client.giveResult(call, output),
      goOn: () => this.goOn(),
      trouble: (problem) => events.trouble(problem),
    });
    this.client = new RealtimeClient({
      send: (event) => this.line?.send(event) ?? false,
      session: (session) => this.sessionTold(session),
      ready: () => events.ready(),
      speechStarted: (item) => this.speechStarted(item),
      speechStopped: (silence_ms) => this.speechStopped(silence_ms),
      committed: (item) => this.committed(item),
      nothingSaid: () => this.nothingSaid(),
      unanswered: () => this.unanswered(),
      heard: (item, text, final) => tell("text", "user", item, text, final),
      hearing: (item, text) => tell("hearing", item, text),
      answerStarted: () => this.answerStarted(),
      answerItem: (item) => this.answerNamed(item),
      answerText: (item, delta, spoken) => (spoken ? this.subtitles.text(item, delta) : this.texts.piece(item, delta)),
      answerMarks: (item, marks) => this.subtitles.mark(item, marks),
      cut: (item, text) => this.cut(item, text),
      called: (call) => void this.tools.call(call),
      answerDone: (outcome) => this.answerDone(outcome),
      refused: (sentence, reason) => events.trouble(new Problem("refused", sentence, reason)),
    });
  }

  /** Whether an answer is under way or sounds. */
  private get answering(): boolean {
    return this.client.answering || (this.line?.playing ?? false);
  }

  /** Whether there is an answer to stop: one that is complete and does not sound yet is one, too. */
  get stoppable(): boolean {
    return this.answering || (this.complete && this.clock.running);
  }

  /** Whether an answer is waited for that does not sound yet. */
  get thinking(): boolean {
    return this.client.answering || this.clock.running;
  }

  receive(event: ServerEvent): void {
    if (event.type === "parley.output_audio.paused") this.overlapping = true;
    if (event.type === "parley.output_audio.resumed") this.overlapping = false;
    this.client.receive(event);
  }

  /** An event of the page's own. */
  pass(event: ClientEvent): void {
    if (event.type === "response.cancel") this.stop();
    else this.client.pass(event);
  }

  configure(session: object): void {
    this.client.configure(session);
  }

  /** The session goes on over this line. */
  resume(line: Line): void {
    this.line = line;
    this.client.resumed();
    if (this.client.interrupted) void line.silence(); // what still comes of that answer
  }

  /** Something typed or shown, to be answered. */
  say(saying: Saying): void {
    this.giveWay();
    const item = this.client.say(saying);
    this.tell("text", "user", item, saying.text ?? "A picture", true);
    if (saying.picture !== undefined) this.tell("picture", saying.picture, item);
    this.begin("sent", performance.now());
    this.client.respond();
  }

  /** Show what the user sees while speaking (`item`; null: it has no name yet); a call carries it by itself. */
  show(picture: string, item: string | null): void {
    if (!this.line?.takesVideo) this.client.show(picture);
    if (item === null) this.shown = picture;
    else this.tell("picture", picture, item);
  }

  /** End the answer. A question that waits for its end gets none. */
  stop(): void {
    this.client.dropQuestion();
    this.giveWay();
  }

  /** The microphone is gone: where nothing takes its place, the server would wait for the end of the turn for good. */
  unheard(): void {
    if (!this.userSpeaking && !this.overlapping) return;
    this.userSpeaking = false;
    if (this.line?.kind === "websocket") this.client.fallSilent(); // a call's server hears silence where no sound comes
  }

  /** A turn begins that the user marks: nothing of before counts. */
  beginTurn(): void {
    this.giveWay();
    this.shown = null;
    this.client.beginTurn();
  }

  /** That turn ended at `at_ms`: answer it. */
  endTurn(at_ms: number): void {
    this.client.commitTurn();
    this.begin("released", at_ms);
  }

  /** A sound began; `item` where the line knows whose it is. */
  audible(at_ms: number, item: string | null): void {
    if (item === null || item === this.answerItem) this.clock.audible(at_ms);
  }

  /** So much of an answer's sound is heard; `item` where the line knows whose it is. Null: nobody knows how much. */
  played(item: string | null, head: Playhead | null): void {
    if (head === null) this.subtitles.flush();
    else if (item === null || item === this.answerItem) this.subtitles.played(head);
  }

  /** The loudspeaker began to sound, or ran dry. */
  playingChanged(): void {
    if (this.answering) return;
    this.subtitles.flush();
    this.texts.settle();
    if (this.complete) this.clock.forget();
  }

  /** Tell what waits for its sound. */
  leave(): void {
    this.subtitles.flush();
    this.texts.settle(true);
  }

  /** The line is gone, and with it what was under way. */
  reset(): void {
    this.line = this.answerItem = this.shown = null;
    this.subtitles.drop();
    this.texts.settle(true);
    this.tools.reset();
    this.userSpeaking = this.overlapping = false;
    this.clock.forget();
    this.client.reset();
  }

  /** The answer ends: the user says something. */
  private giveWay(): void {
    this.client.cancel();
    this.silence();
    this.clock.forget();
  }

  private speechStarted(item: string): void {
    this.userSpeaking = true;
    this.overlapping = false;
    if (this.client.interrupts) {
      this.silence();
      this.clock.forget();
    }
    this.tell("spoke", item);
    this.events.speechStarted(item);
    this.tell("change");
  }

  private speechStopped(silence_ms: number | null): void {
    this.userSpeaking = false;
    if (this.client.answersTurns) return this.begin("spoken", performance.now(), silence_ms);
    this.goOn();
    this.tell("change");
  }

  /** A turn that the user marked has its name now. */
  private committed(item: string): void {
    this.tell("spoke", item);
    if (this.shown !== null) this.tell("picture", this.shown, item);
    this.shown = null;
  }

  private unanswered(): void {
    this.clock.forget();
    this.goOn();
    this.tell("change");
  }

  private nothingSaid(): void {
    this.unanswered();
    this.events.trouble(new Problem("refused", "Nothing was heard: hold it down while you speak."));
  }

  private begin(after: "sent" | "released" | "spoken", at_ms: number, silence_ms: number | null = null): void {
    if (this.client.interrupts || !this.answering) this.answerItem = null; // else it goes on
    this.complete = false;
    this.clock.begin(after, at_ms, silence_ms);
    this.tell("change");
  }

  private answerStarted(): void {
    this.answerItem = null;
    this.texts.settle(true);
    this.tools.seen();
    this.line?.resume();
    this.tell("change");
  }

  private sessionTold(session: Session): void {
    this.aligned = session.parley?.alignment === true;
    this.tell("session", session);
  }

  private answerNamed(item: string): void {
    this.answerItem = item;
    this.texts.begin(item);
    if (this.aligned && this.line?.tellsPlayed) this.subtitles.begin(item);
  }

  private answerDone(outcome: Outcome): void {
    if (outcome.error !== null) this.events.trouble(new Problem("refused", `The answer failed (${outcome.error}): ask again.`));
    if (!outcome.earlier) this.settle(outcome);
    if (!this.answering) {
      this.subtitles.flush();
      this.texts.settle();
      // One without a ledger made no sound, and none will come; nor where nothing plays. Over a call it may be about to.
      if (this.complete && (outcome.ledger === null || !this.line?.tellsPlayed)) this.clock.forget();
    }
    this.goOn();
    this.tell("answerDone");
    this.tell("change");
  }

  /** The answer to the last turn is complete. */
  private settle({ status, ledger }: Outcome): void {
    if (status !== "cancelled" || this.clock.heardFirst) this.clock.settle(ledger);
    this.complete = status !== "cancelled";
  }

  /** Cut the sound now; the server then learns how much of it was heard, where it can't know. */
  private silence(): void {
    if (!this.stoppable) return;
    const item = this.answerItem;
    this.answerItem = null;
    this.subtitles.drop();
    if (item !== null) this.texts.interrupted(item);
    this.texts.settle();
    if (item !== null) this.tell("interrupted", item);
    const serverTells = this.line?.kind === "webrtc" && this.line.playing; // what was heard
    void this.line?.silence().then((heard) => {
      if (heard !== null) this.client.truncate(heard.item, heard.ms);
      else if (!serverTells) this.texts.settle(true);
    });
  }

  /** Only so much of an interrupted answer was heard. */
  private cut(item: string, heard: string | null): void {
    this.tell("cut", item, heard);
    this.texts.cut(item, heard);
  }

  /** The model has its functions' results: let it answer, unless the user's next words do. */
  private goOn(): void {
    if (!this.client.answering && !this.userSpeaking && !this.client.marking && this.tools.due()) this.client.respond();
  }
}
