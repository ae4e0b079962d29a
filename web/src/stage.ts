/** The orb, the words under it and the buttons around it: what the conversation does now, and what one can do about it. */

import { element } from "./dom";
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

const HINTS: Record<Exclude<VoiceState, "waiting" | "speaking">, readonly [handsFree: string, hold: string]> = {
  idle: ["Tap to talk, or type", "Hold Space, or the circle, and speak"],
  connecting: ["One moment", "One moment"],
  lost: ["Trying again", "Trying again"],
  ready: ["Tap to talk, or type", "Hold Space, or the circle, and speak"],
  muted: ["Tap to be heard again", "Tap to be heard again"],
  listening: ["Just speak", "Just speak"],
  hearing: ["Go on", "Let go when you are done"],
  thinking: ["", ""],
};

const BY_TOUCH = matchMedia("(pointer: coarse)").matches;

const state = element("state");
const hint = element("hint");
const talk = element<HTMLButtonElement>("talk");
const mute = element<HTMLButtonElement>("mute");
const stop = element<HTMLButtonElement>("stop");
const end = element<HTMLButtonElement>("end");

export class Stage {
  private readonly orb: Orb;
  private position = 1; // in the line of a full server
  private understandsSpeech = true;

  constructor(private readonly voice: VoiceClient) {
    this.orb = new Orb(element("orb"), () => voice.levels());
    talk.addEventListener("click", () => this.tap());
    talk.addEventListener("pointerdown", () => voice.hold());
    for (const up of ["pointerup", "pointercancel", "pointerleave"]) talk.addEventListener(up, () => voice.release());
    mute.addEventListener("click", () => voice.mute(!voice.muted));
    stop.addEventListener("click", () => this.stop());
    end.addEventListener("click", () => this.end());
    document.addEventListener("keydown", (event) => this.down(event));
    document.addEventListener("keyup", (event) => this.up(event));
    window.addEventListener("blur", () => voice.release());
  }

  show(): void {
    const { voice } = this;
    this.orb.show(voice.state);
    if (state.textContent !== WORDS[voice.state]) state.textContent = WORDS[voice.state];
    state.dataset["state"] = voice.state;
    document.body.classList.toggle("hold", !voice.handsFree);
    hint.textContent = this.hint();
    talk.setAttribute("aria-label", this.label());
    talk.querySelector("use")!.setAttribute("href", voice.muted ? "#i-muted" : "#i-mic");
    mute.disabled = !voice.talking || !voice.handsFree;
    mute.setAttribute("aria-pressed", String(voice.muted));
    stop.disabled = !voice.answering;
    end.disabled = voice.state === "idle";
  }

  learn({ understands_speech = true }: Loaded): void {
    this.understandsSpeech = understands_speech;
    this.show();
  }

  private hint(): string {
    const { state, handsFree } = this.voice;
    if (state === "waiting") return this.place();
    if (!this.understandsSpeech && (state === "idle" || state === "ready")) return "Type your question";
    return state === "speaking" ? this.interruption() : HINTS[state][handsFree ? 0 : 1];
  }

  /** Only who is heard can interrupt by speaking. */
  private interruption(): string {
    const { talking, muted, handsFree } = this.voice;
    const ways = [...(handsFree && talking && !muted ? ["speak"] : []), ...(BY_TOUCH ? ["tap Stop"] : ["press Esc"])];
    const words = `${ways.join(", or ")} to interrupt`;
    return words.charAt(0).toUpperCase() + words.slice(1);
  }

  /** The user's place in the line of a full server: 1 is next. */
  queued(position: number): void {
    this.position = position;
    this.show();
  }

  private place(): string {
    const place = this.position === 1 ? "You are next in line" : `You are number ${this.position} in line`;
    return this.voice.sayings.empty ? place : `${place}; what you typed is kept`;
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
    element("question").focus(); // the button is disabled now, and would lose the keyboard
  }

  private end(): void {
    this.voice.end();
    talk.focus();
  }

  private down(event: KeyboardEvent): void {
    if (event.key === "Escape" && document.querySelector("dialog[open]") === null && this.voice.answering) this.voice.stop();
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
  return target === talk || !(target instanceof Element && target.closest("input, button, select, summary, dialog"));
}
