/**
 * A spoken conversation: the client, the microphone and the player, and the rules between them.
 *
 * An interruption silences the loudspeaker first and tells the server after. Knows no element of the page.
 */

import { RealtimeClient, type Outcome } from "./client";
import { Microphone } from "./microphone";
import { RATE_HZ } from "./pcm";
import { Player } from "./player";
import { sentence } from "./problem";
import type { Ledger } from "./wire";

export type CallState = "connecting" | "ready" | "listening" | "thinking" | "speaking" | "error";

/** How long the last answer's first sound took, from the end of the user's turn, in ms. */
export interface FirstSound {
  readonly heard_ms: number;
  readonly after: "sent" | "spoken";
  readonly ledger: Ledger | null;
}

export interface CallView {
  /** State, microphone or anything else that is shown by a getter changed. */
  changed(): void;
  userSpoke(item: string): void;
  userText(item: string, text: string, final: boolean): void;
  answerText(item: string, delta: string): void;
  /** Nothing more comes; `item` is the answer that was interrupted, if any. */
  interrupted(item: string): void;
  answerDone(): void;
  firstSound(figure: FirstSound): void;
  level(peak: number): void;
  /** A sentence for the user, or null when the last one no longer holds. */
  problem(message: string | null): void;
  reconnected(): void;
}

const TRAILING_SILENCE = new Int16Array(0.9 * RATE_HZ); // more than the server waits for before it ends a turn

export class Call {
  private readonly client: RealtimeClient;
  private readonly player: Player;
  private microphone: Microphone | null = null;
  private wish: object | null = null; // the press of Talk that still holds
  private link: "connecting" | "ready" | "lost" = "connecting";
  private links = 0;
  private userSpeaking = false;
  private turnEnd: { at_ms: number; after: FirstSound["after"] } | null = null; // until its answer sounds
  private heard: Omit<FirstSound, "ledger"> | null = null; // until the answer's ledger comes
  private ledger: Ledger | null = null; // until its answer sounds
  private answerItem: string | null = null; // what the answer under way, or last complete, is called

  constructor(
    url: string,
    element: HTMLAudioElement,
    private readonly view: CallView,
  ) {
    this.player = new Player(element, {
      audible: (item, at_ms) => this.audible(item, at_ms),
      changed: () => view.changed(),
      full: () => view.problem("The answer is longer than this page can hold: some of it is lost, ask for a shorter one."),
    });
    this.client = new RealtimeClient(url, {
      connecting: () => this.setLink("connecting"),
      ready: () => this.ready(),
      lost: (retry_ms, reason) => this.lost(retry_ms, reason),
      speechStarted: (item) => this.speechStarted(item),
      speechStopped: () => this.speechStopped(),
      heard: (item, text, final) => view.userText(item, text, final),
      answerStarted: () => this.answerStarted(),
      answerAudio: (item, pcm) => this.answerAudio(item, pcm),
      answerText: (item, delta) => view.answerText(item, delta),
      answerDone: (outcome) => this.answerDone(outcome),
      refused: (message) => view.problem(message),
    });
  }

  get state(): CallState {
    if (this.link !== "ready") return this.link === "lost" ? "error" : "connecting";
    if (this.userSpeaking) return "listening";
    if (this.player.playing) return "speaking";
    if (this.client.answering || this.turnEnd !== null) return "thinking";
    return this.talking ? "listening" : "ready";
  }

  /** Whether the microphone is on, or being opened. */
  get talking(): boolean {
    return this.wish !== null;
  }

  /** Whether there is an answer to stop. */
  get answering(): boolean {
    return this.client.answering || this.player.playing;
  }

  connect(): void {
    this.client.connect();
  }

  /** To be called in the handler of a click or a key: only then may a page make a sound. Costs nothing when awake. */
  wake(): void {
    this.player.wake().catch((error: unknown) => this.view.problem(sentence(error, "Opening the loudspeaker")));
  }

  /** Ask a typed question. Returns its item id; null while there is no server. */
  ask(text: string): string | null {
    if (this.link !== "ready") return null;
    this.wake();
    this.silence();
    const item = this.client.ask(text);
    this.view.problem(null);
    this.begin("sent");
    return item;
  }

  /** End the answer. */
  stop(): void {
    this.turnEnd = null;
    this.client.cancel();
    this.silence();
    this.view.changed();
  }

  /** Turn the microphone on. */
  async talk(): Promise<void> {
    if (this.talking) return;
    const wish = (this.wish = {});
    this.wake();
    this.view.problem(null);
    this.view.changed();
    try {
      const microphone = await Microphone.open((pcm) => this.piece(pcm), () => this.microphoneLost());
      if (wish === this.wish) this.microphone = microphone;
      else microphone.close(); // the user thought better of it while the browser asked
    } catch (error) {
      if (wish !== this.wish) return;
      this.hush();
      this.view.problem(sentence(error, "Opening the microphone"));
    }
  }

  /** Turn the microphone off. A turn in progress ends here, and is answered. */
  hush(): void {
    if (!this.talking) return;
    this.wish = null;
    this.microphone?.close();
    this.microphone = null;
    if (this.userSpeaking) this.client.hear(TRAILING_SILENCE);
    this.view.level(0);
    this.view.changed();
  }

  private piece(pcm: Int16Array): void {
    this.client.hear(pcm);
    this.view.level(pcm.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0) / 32768);
  }

  private microphoneLost(): void {
    this.hush();
    this.view.problem("The microphone went away: plug it in again, then press Talk.");
  }

  private setLink(link: Call["link"]): void {
    this.link = link;
    this.view.changed();
  }

  private ready(): void {
    if (this.links++ > 0) this.view.reconnected();
    this.view.problem(null);
    this.setLink("ready");
  }

  private lost(retry_ms: number | null, reason: string): void {
    this.userSpeaking = false;
    this.turnEnd = null;
    const next = retry_ms === null ? "reload the page to try again" : `trying again in ${retry_ms / 1000} s`;
    this.view.problem(`The server ${retry_ms === null ? "refused" : "is not answering"}${reason && ` (${reason})`}: ${next}.`);
    this.setLink("lost");
  }

  private speechStarted(item: string): void {
    this.userSpeaking = true;
    this.turnEnd = null;
    this.silence();
    this.view.userSpoke(item);
    this.view.changed();
  }

  private speechStopped(): void {
    this.userSpeaking = false;
    this.begin("spoken");
  }

  private answerStarted(): void {
    this.answerItem = null;
    this.view.changed();
  }

  private answerAudio(item: string, pcm: Int16Array<ArrayBuffer>): void {
    this.answerItem = item;
    void this.player.play(item, pcm);
  }

  /** Cut the sound now; the server then learns how much of it was heard. */
  private silence(): void {
    const item = this.answerItem;
    if (item === null || !this.answering) return;
    this.answerItem = null;
    void this.player.flush().then((heard) => {
      if (heard?.item !== item) return;
      this.client.truncate(item, heard.ms);
      this.view.interrupted(item);
    });
  }

  private audible(item: string, at_ms: number): void {
    if (this.turnEnd === null || item !== this.answerItem) return;
    this.heard = { heard_ms: at_ms - this.turnEnd.at_ms, after: this.turnEnd.after };
    this.turnEnd = null;
    this.view.firstSound({ ...this.heard, ledger: this.ledger });
  }

  private answerDone(outcome: Outcome): void {
    if (outcome.error !== null) this.view.problem(`The answer failed (${outcome.error}): ask again.`);
    if (outcome.status !== "cancelled") this.settle(outcome.ledger);
    this.view.answerDone();
    this.view.changed();
  }

  /** A short answer is complete before it sounds, a long one after. */
  private settle(ledger: Ledger | null): void {
    if (this.heard !== null) this.view.firstSound({ ...this.heard, ledger });
    else this.ledger = ledger;
    this.heard = null;
    if (!this.answering) this.turnEnd = null; // it made no sound, and none will come
  }

  private begin(after: FirstSound["after"]): void {
    this.turnEnd = { at_ms: performance.now(), after };
    this.answerItem = null;
    this.heard = null;
    this.ledger = null;
    this.view.changed();
  }
}
