/** Tools that this page offers the model: a timer, light or dark, the volume. */

import { element, made } from "./dom";
import type { Loaded, VoiceClient } from "./library";
import { setTheme } from "./theme";

const MAX_MINUTES = 24 * 60;
const BEEP_S = 0.25;

const TIMER = {
  description: "Start a timer.",
  properties: { minutes: { type: "number", description: "Its length in minutes.", minimum: 0, maximum: MAX_MINUTES } },
  required: ["minutes"],
} as const;
const LIGHT = {
  description: "Switch between the light theme (on) and the dark theme (off).",
  properties: { state: { type: "string", enum: ["on", "off"] } },
  required: ["state"],
} as const;
const VOLUME = {
  description: "Set the volume of the voice.",
  properties: { level: { type: "number", description: "In percent.", minimum: 0, maximum: 100 } },
  required: ["level"],
} as const;

export class PageTools {
  private remove: (() => void)[] = [];
  private able = false; // the model calls tools

  constructor(
    private readonly voice: VoiceClient,
    private readonly audio: HTMLAudioElement,
    private readonly tell: (text: string) => void,
    private wanted: boolean,
  ) {
    this.list();
  }

  learn({ abilities = [] }: Loaded): void {
    this.able = abilities.includes("tools");
    this.apply();
  }

  use(wanted: boolean): void {
    this.wanted = wanted;
    this.apply();
  }

  private apply(): void {
    const on = this.able && this.wanted;
    if (on === this.remove.length > 0) return;
    for (const remove of this.remove.splice(0)) remove();
    if (on) this.remove = this.add();
    this.list();
  }

  private add(): (() => void)[] {
    const { voice } = this;
    return [
      voice.tool("set_timer", TIMER, ({ minutes }) => this.startTimer(minutes)),
      voice.tool("set_light", LIGHT, ({ state }) => {
        setTheme(state === "on" ? "light" : "dark");
        return { light: state };
      }),
      voice.tool("set_volume", VOLUME, ({ level }) => {
        this.audio.volume = level / 100;
        return { level };
      }),
    ];
  }

  private startTimer(minutes: number): object {
    if (!(minutes > 0 && minutes <= MAX_MINUTES)) throw new Error(`minutes must be above 0 and at most ${MAX_MINUTES} (got ${minutes})`);
    setTimeout(() => {
      this.tell(`The timer of ${minutes} ${minutes === 1 ? "minute" : "minutes"} is over.`);
      beep();
    }, minutes * 60_000);
    return { started: true, minutes };
  }

  private list(): void {
    const offered = Object.entries({ set_timer: TIMER, set_light: LIGHT, set_volume: VOLUME });
    const rows = this.remove.length === 0 ? [] : offered.map(([name, { description }]) => row(name, description));
    element("offered").replaceChildren(...(rows.length > 0 ? rows : [made("li", this.able ? "None: the settings turn them off." : "None: this model calls no tools.")]));
  }
}

function row(name: string, description: string): HTMLElement {
  const line = made("li");
  line.append(made("code", name), made("span", description));
  return line;
}

/** Three short tones. */
function beep(): void {
  const context = new AudioContext();
  const gain = new GainNode(context, { gain: 0.2 });
  gain.connect(context.destination);
  for (const n of [0, 1, 2]) {
    const tone = new OscillatorNode(context, { frequency: 880 });
    tone.connect(gain);
    tone.start(context.currentTime + 2 * n * BEEP_S);
    tone.stop(context.currentTime + (2 * n + 1) * BEEP_S);
    if (n === 2) tone.onended = () => void context.close();
  }
}
