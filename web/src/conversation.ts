/**
 * Whose turn it is: the rules between what the protocol tells, what the loudspeaker does and what the user wants.
 *
 * An interruption silences the loudspeaker first and tells the server after. Knows no device and no connection.
 */

import { RealtimeClient, type Outcome, type Saying } from "./client";
import { FirstSoundClock } from "./first_sound";
import type { Line } from "./line";
import { Problem } from "./problem";
import type { ServerEvent } from "./wire";
import type { VoiceEvents } from "./voice_events";

/** Tells one of VoiceClient's events. */
export type Tell = <K extends keyof VoiceEvents>(name: K, ...values: Parameters<VoiceEvents[K]>) => void;

export interface ConversationEvents {
  /** The server took the session's settings. */
  ready(): void;
  trouble(problem: Problem): void;
  speechStarted(): void;
}

export class Conversation {
  line: Line | null = null;
  /** Whether the server hears the user speak. */
  userSpeaking = false;
  private readonly clock: FirstSoundClock;
  private readonly client: RealtimeClient;
  private answerItem: string | null = null; // what the answer under way, or last complete, is called

  constructor(
    private readonly tell: Tell,
    private readonly events: ConversationEvents,
  ) {
    this.clock = new FirstSoundClock((figure) => tell("firstSound", figure));
    this.client = new RealtimeClient({
      send: (event) => this.line?.send(event) ?? false,
      session: (session) => tell("session", session),
      ready: () => events.ready(),
      speechStarted: (item) => this.speechStarted(item),
      speechStopped: () => this.speechStopped(),
      nothingSaid: () => this.nothingSaid(),
      heard: (item, text, final) => tell("text", "user", item, text, final),
      answerStarted: () => this.answerStarted(),
      answerItem: (item) => (this.answerItem = item),
      answerText: (item, delta) => tell("text", "answer", item, delta, false),
      cut: (item, text) => tell("cut", item, text),
      answerDone: (outcome) => this.answerDone(outcome),
      refused: (message) => events.trouble(new Problem("refused", message)),
    });
  }

  /** Whether there is an answer to stop. */
  get answering(): boolean {
    return this.client.answering || (this.line?.playing ?? false);
  }

  /** Whether an answer is waited for that does not sound yet. */
  get thinking(): boolean {
    return this.client.answering || this.clock.running;
  }

  receive(event: ServerEvent): void {
    this.client.receive(event);
  }

  configure(session: object): void {
    this.client.configure(session);
  }

  /** Something typed or shown, to be answered. */
  say(saying: Saying): void {
    this.stop();
    const item = this.client.say(saying);
    this.tell("text", "user", item, saying.text ?? "A picture", true);
    if (saying.picture !== undefined) this.tell("picture", saying.picture);
    this.client.respond();
    this.begin("sent", performance.now());
  }

  /** What the user sees while speaking; a call carries it by itself. */
  show(picture: string): void {
    if (!this.line?.takesVideo) this.client.show(picture);
    this.tell("picture", picture);
  }

  /** End the answer. */
  stop(): void {
    this.clock.forget();
    this.client.cancel();
    this.silence();
  }

  /** A turn begins that the user marks: nothing of before counts. */
  beginTurn(): void {
    this.stop();
    this.client.beginTurn();
  }

  /** That turn ended at `at_ms`: answer it. */
  endTurn(at_ms: number): void {
    this.client.commitTurn();
    this.begin("spoken", at_ms);
  }

  /** A sound began; `item` where the line knows whose it is. */
  audible(at_ms: number, item: string | null): void {
    if (item === null || item === this.answerItem) this.clock.audible(at_ms);
  }

  /** The line is gone, and with it what was under way. */
  reset(): void {
    this.line = this.answerItem = null;
    this.userSpeaking = false;
    this.clock.forget();
    this.client.reset();
  }

  private speechStarted(item: string): void {
    this.userSpeaking = true;
    this.clock.forget();
    this.silence();
    this.tell("spoke", item);
    this.events.speechStarted();
    this.tell("change");
  }

  private speechStopped(): void {
    this.userSpeaking = false;
    this.begin("spoken", performance.now());
  }

  private nothingSaid(): void {
    this.clock.forget();
    this.tell("change");
  }

  private begin(after: "sent" | "spoken", at_ms: number): void {
    this.answerItem = null;
    this.clock.begin(after, at_ms);
    this.tell("change");
  }

  private answerStarted(): void {
    this.answerItem = null;
    this.line?.resume();
    this.tell("change");
  }

  private answerDone(outcome: Outcome): void {
    if (outcome.error !== null) this.events.trouble(new Problem("refused", `The answer failed (${outcome.error}): ask again.`));
    if (outcome.status !== "cancelled") this.clock.settle(outcome.ledger);
    if (!this.answering && outcome.status !== "cancelled") this.clock.forget(); // it made no sound, and none will come
    this.tell("answerDone");
    this.tell("change");
  }

  /** Cut the sound now; the server then learns how much of it was heard, where it can't know. */
  private silence(): void {
    if (!this.answering) return;
    const item = this.answerItem;
    this.answerItem = null;
    if (item !== null) this.tell("interrupted", item);
    void this.line?.silence().then((heard) => {
      if (heard !== null) this.client.truncate(heard.item, heard.ms);
    });
  }
}
