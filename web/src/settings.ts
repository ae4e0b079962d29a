/** The settings: how to talk, through which devices and over which connection. What is chosen takes effect at once. */

import { element } from "./dom";
import { choices, choose, recalled, remember } from "./memory";
import { devices, problemOf, Trial, type Eagerness, type Loaded, type Problem, type VoiceClient, type Wanted } from "./library";

const dialog = element<HTMLDialogElement>("settings");
const microphones = element<HTMLSelectElement>("microphones");
const speakers = element<HTMLSelectElement>("speakers");
const cameras = element<HTMLSelectElement>("cameras");
const voices = element<HTMLSelectElement>("voices");
const eagerness = element<HTMLSelectElement>("eagerness");
const instructions = element<HTMLTextAreaElement>("instructions");
const transport = element<HTMLSelectElement>("transport");
const key = element<HTMLInputElement>("key");
const meter = element("meter");
const cameraButton = element<HTMLButtonElement>("camera");

export interface SettingsEvents {
  /** The user has chosen how to talk: the server forgets what they began to say. */
  mode(): void;
  trouble(problem: Problem): void;
}

export class Settings {
  private readonly trial = new Trial();

  constructor(
    private readonly voice: VoiceClient,
    private readonly events: SettingsEvents,
  ) {
    this.recall();
    element("open-settings").addEventListener("click", () => this.open());
    element("try").addEventListener("click", () => this.try(microphones.value || null));
    for (const radio of dialog.querySelectorAll<HTMLInputElement>("[name=mode]")) {
      radio.addEventListener("change", () => this.setMode(radio.value === "hands-free"));
    }
    microphones.addEventListener("change", () => this.setMicrophone(microphones.value || null));
    speakers.addEventListener("change", () => this.setSpeaker(speakers.value));
    cameras.addEventListener("change", () => this.setCamera(cameras.value === "off" ? false : cameras.value || null));
    cameraButton.addEventListener("click", () => this.setCamera(voice.inputs.camera === null ? null : false));
    transport.addEventListener("change", () => this.setTransport(transport.value as Wanted));
    voices.addEventListener("change", () => this.setVoice(voices.value));
    eagerness.addEventListener("change", () => this.setEagerness(eagerness.value as Eagerness));
    instructions.addEventListener("change", () => this.setInstructions(instructions.value.trim()));
    key.addEventListener("change", () => this.setKey(key.value.trim()));
    navigator.mediaDevices?.addEventListener("devicechange", () => void this.list());
  }

  open(): void {
    dialog.showModal();
    element("try").hidden = this.voice.talking;
    void this.list();
    requestAnimationFrame(() => this.measure());
  }

  /** The server's voices, and the one that speaks; a choice only where there is one. */
  showVoices(loaded: Loaded, speaking: string | null): void {
    const { voices: ids = [], voice_details = ids.map((id) => ({ id, name: id, language: "" })) } = loaded;
    element("voice-row").hidden = ids.length < 2;
    const chosen = speaking ?? choices().voice;
    voices.replaceChildren(...voice_details.map(({ id, name, language }) => new Option(named(name, language), id, false, id === chosen)));
  }

  show(): void {
    cameraButton.setAttribute("aria-pressed", String(this.voice.inputs.camera !== null));
  }

  private recall(): void {
    const { handsFree, transport: wanted, speaker, voice, eagerness: soon, instructions: told } = choices();
    this.voice.transport = transport.value = wanted;
    this.voice.key = (recalled("key") as string | null) || null;
    this.voice.setHandsFree(handsFree);
    if (voice !== null) this.voice.useVoice(voice);
    this.voice.setEagerness((eagerness.value = soon) as Eagerness);
    if (told !== null) this.voice.setInstructions((instructions.value = told));
    if (speaker) void this.voice.useSpeaker(speaker).catch(() => choose({ speaker: "" })); // it is not here any more
    dialog.querySelector<HTMLInputElement>(`[value=${handsFree ? "hands-free" : "hold"}]`)!.checked = true;
    key.value = (recalled("key") as string | null) ?? "";
  }

  private setMode(handsFree: boolean): void {
    choose({ handsFree });
    this.voice.setHandsFree(handsFree);
    this.events.mode();
  }

  private setMicrophone(microphone: string | null): void {
    choose({ microphone });
    void this.voice.inputs.use(microphone).then(() => this.list());
    if (!this.voice.talking) this.try(microphone);
  }

  private try(microphone: string | null): void {
    this.attempt(this.trial.open(microphone), "Opening the microphone");
  }

  private setSpeaker(speaker: string): void {
    choose({ speaker });
    this.attempt(this.voice.useSpeaker(speaker), "Opening the loudspeaker");
  }

  private setCamera(device: string | null | false): void {
    this.attempt(this.voice.inputs.look(device), "Opening the camera");
  }

  private setTransport(wanted: Wanted): void {
    choose({ transport: wanted });
    this.voice.transport = wanted;
    this.voice.reconnect();
  }

  private setVoice(voice: string): void {
    choose({ voice });
    this.voice.useVoice(voice);
  }

  private setEagerness(soon: Eagerness): void {
    choose({ eagerness: soon });
    this.voice.setEagerness(soon);
  }

  private setInstructions(told: string): void {
    choose({ instructions: told });
    this.voice.setInstructions(told);
  }

  private setKey(text: string): void {
    remember("key", text);
    this.voice.key = text || null;
  }

  private attempt(change: Promise<void>, doing: string): void {
    change.then(
      () => void this.list(),
      (error: unknown) => this.events.trouble(problemOf(error, doing)),
    );
  }

  private async list(): Promise<void> {
    const anyCamera = new Option("Off", "off");
    fill(microphones, new Option("The browser's choice", ""), await devices("audioinput"), this.voice.inputs.chosen ?? "");
    fill(speakers, new Option("The browser's choice", ""), await devices("audiooutput"), choices().speaker);
    fill(cameras, anyCamera, await devices("videoinput"), this.voice.inputs.camera?.device ?? "off");
    speakers.disabled = !("setSinkId" in HTMLMediaElement.prototype);
  }

  /** The level of the microphone, while the dialog is open; one that is not in use is tried when it is asked for. */
  private measure(): void {
    if (!dialog.open) return this.trial.close();
    const level = Math.min(1, Math.sqrt(Math.max(this.voice.levels().user, this.trial.level())));
    meter.style.setProperty("--level", level.toFixed(3));
    meter.setAttribute("aria-valuenow", String(Math.round(100 * level)));
    requestAnimationFrame(() => this.measure());
  }
}

/** A voice's name and, in the browser's words, its language. */
function named(name: string, language: string): string {
  if (language === "") return name;
  return `${name}, ${new Intl.DisplayNames(undefined, { type: "language" }).of(language) ?? language}`;
}

function fill(select: HTMLSelectElement, first: HTMLOptionElement, all: readonly { id: string; name: string }[], chosen: string): void {
  const others = all.filter(({ id }) => id !== "default").map(({ id, name }) => new Option(name, id));
  select.replaceChildren(first, ...others);
  select.value = chosen;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

