/** The orb, the words beside it and the dock's keys of a call: what the conversation does now, and what one can do about it. */

import { byTouch, element, setIcon } from "./dom";
import { Orb } from "./orb";
import type { Loaded, VoiceClient, VoiceState } from "./library";

const WORDS: Record<VoiceState, string> = {
  idle: "Ready",
  connecting: "Connecting",
  lost: "No connection",
  waiting: "The server is full",
  ready: "Ready",
  muted: "Muted",
  listening: "Listening",
  hearing: "I hear you",
  thinking: "Thinking",
  speaking: "Speaking",
};

const TAP = byTouch() ? "Tap" : "Click";
const HOLD = byTouch() ? "Hold the microphone and speak" : "Hold Space, or the microphone, and speak";
const HINTS: Record<Exclude<VoiceState, "waiting" | "speaking">, readonly [handsFree: string, hold: string]> = {
  idle: [`${TAP} the microphone, or type`, HOLD],
  connecting: ["One moment", "One moment"],
  lost: ["", ""], // the notice says it
  ready: [`${TAP} the microphone, or type`, HOLD],
  muted: [`${TAP} the microphone to be heard again`, `${TAP} the microphone to be heard again`],
  listening: ["Just speak", "Just speak"],
  hearing: ["Go on", "Let go when you are done"],
  thinking: ["", ""],
};

const state = element("state");
const hint = element("hint");
const orb = element<HTMLCanvasElement>("orb");
const talk = element<HTMLButtonElement>("talk");
const start = element<HTMLButtonElement>("start");
const send = element<HTMLButtonElement>("send");
const stop = element<HTMLButtonElement>("stop");
const end = element<HTMLButtonElement>("end");
const question = element<HTMLInputElement>("question");

export class Stage {
  private readonly orb: Orb;
  private position = 1; // in the line of a full server
  private understandsSpeech = true;
  private blocked = false; // the user or the browser refused the microphone

  constructor(private readonly voice: VoiceClient) {
    this.orb = new Orb(orb, () => voice.levels());
    for (const one of [talk, start, orb]) {
      one.addEventListener("click", () => this.tap());
      one.addEventListener("pointerdown", () => voice.hold());
      for (const up of ["pointerup", "pointercancel", "pointerleave"]) one.addEventListener(up, () => voice.release());
    }
    stop.addEventListener("click", () => this.stop());
    end.addEventListener("click", () => this.end());
    question.addEventListener("input", () => this.offerStop());
    document.addEventListener("keydown", (event) => this.down(event));
    document.addEventListener("keyup", (event) => this.up(event));
    window.addEventListener("blur", () => voice.release());
  }

  show(): void {
    const { voice } = this;
    this.orb.show(this.refused ? "muted" : voice.state);
    if (state.textContent !== this.words) state.textContent = this.words;
    state.dataset["state"] = document.body.dataset["state"] = voice.state;
    document.body.classList.toggle("hold", !voice.handsFree);
    hint.textContent = this.hint();
    this.showTalk();
    this.offerStop();
    end.hidden = voice.state === "idle";
  }

  private get words(): string {
    const { state, handsFree } = this.voice;
    if (this.refused) return "Microphone blocked";
    return state === "ready" && handsFree ? "Microphone off" : WORDS[state];
  }

  private get refused(): boolean {
    return this.blocked && this.voice.state === "ready";
  }

  /** Whether the microphone was refused when it was asked for last. */
  block(blocked: boolean): void {
    this.blocked = blocked;
    this.show();
  }

  private showTalk(): void {
    const { talking, muted, handsFree } = this.voice;
    talk.setAttribute("aria-label", this.label());
    talk.title = handsFree && !byTouch() ? `${this.label()} (M)` : this.label();
    start.lastElementChild!.textContent = handsFree ? "Start talking" : "Hold to talk";
    setIcon(talk, talking && !muted ? "mic" : "muted");
    talk.toggleAttribute("data-live", talking && !muted);
    talk.toggleAttribute("data-muted", talking && muted);
  }

  /** Stop stands in the place of Send, unless something typed waits there. */
  private offerStop(): void {
    const hadFocus = document.activeElement === stop;
    stop.hidden = !this.voice.answering || question.value !== "";
    send.hidden = !stop.hidden;
    if (hadFocus && stop.hidden) question.focus(); // the button would take the keyboard with it
  }

  learn({ understands_speech = true }: Loaded): void {
    this.understandsSpeech = understands_speech;
    this.show();
  }

  private hint(): string {
    const { state, handsFree } = this.voice;
    if (state === "waiting") return this.place();
    if (this.refused) return "You can type instead";
    if (!this.understandsSpeech && (state === "idle" || state === "ready")) return "Type your question";
    return state === "speaking" ? this.interruption() : HINTS[state][handsFree ? 0 : 1];
  }

  /** Speaking interrupts only while the microphone is on and not muted. */
  private interruption(): string {
    const { talking, muted, handsFree } = this.voice;
    const ways = [...(handsFree && talking && !muted ? ["speak"] : []), ...(byTouch() ? ["tap Stop"] : ["press Esc"])];
    const words = `${ways.join(", or ")} to interrupt`;
    return words.charAt(0).toUpperCase() + words.slice(1);
  }

  /** The user's place in the line of a full server: 1 is next. */
  queued(position: number): void {
    this.position = position;
    this.show();
  }

  private place(): string {
    return this.position === 1 ? "You are next in line" : `You are number ${this.position} in line`;
  }

  private label(): string {
    if (!this.voice.handsFree) return "Hold to talk";
    if (!this.voice.talking) return "Start talking";
    return this.voice.muted ? "Unmute" : "Mute";
  }

  private tap(): void {
    const { voice } = this;
    if (!voice.handsFree) return; // a hold, and not a tap, is what talks
    if (voice.talking) voice.mute(!voice.muted);
    else voice.start();
  }

  private stop(): void {
    this.voice.stop();
    question.focus();
  }

  private end(): void {
    this.voice.end();
    talk.focus();
  }

  private down(event: KeyboardEvent): void {
    if (event.key === "Escape" && document.querySelector("dialog[open], :popover-open") === null && this.voice.answering) this.voice.stop();
    if (event.key !== " " || this.voice.handsFree || !isFree(event.target)) return;
    event.preventDefault();
    if (!event.repeat) this.voice.hold();
  }

  private up(event: KeyboardEvent): void {
    if (event.key === " ") this.voice.release();
  }
}

/** Whether the space bar means nothing else here. */
function isFree(target: EventTarget | null): boolean {
  return target === talk || target === start || !(target instanceof Element && target.closest("input, button, select, summary, dialog"));
}
