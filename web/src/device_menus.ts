/** The microphone, the loudspeaker and the camera: chosen in the dock. What is chosen takes effect at once. */

import { fill, type Choice } from "./choices_list";
import { byTouch, element, setIcon } from "./dom";
import { choices, choose } from "./memory";
import { devices, problemOf, Trial, type Loaded, type Problem, type VoiceClient } from "./library";

const microphones = element("microphones");
const speakers = element("speakers");
const cameras = element("cameras");
const menu = element("microphone-menu");
const meter = element("meter");
const cameraButton = element<HTMLButtonElement>("camera");
const screenButton = element<HTMLButtonElement>("screen");

const BROWSERS: Choice = { id: "", name: "System default" };
const SHARES = "getDisplayMedia" in (navigator.mediaDevices ?? {});

export interface DeviceEvents {
  /** The user has chosen how to talk: the server forgets what they began to say. */
  mode(): void;
  trouble(problem: Problem): void;
}

export class DeviceMenus {
  private readonly trial = new Trial();

  constructor(
    private readonly voice: VoiceClient,
    private readonly events: DeviceEvents,
  ) {
    this.recall();
    element("try").addEventListener("click", () => this.try(choices().microphone));
    for (const radio of document.querySelectorAll<HTMLInputElement>("[name=mode]")) {
      radio.addEventListener("change", () => this.setMode(radio.value === "hands-free"));
    }
    menu.addEventListener("toggle", (event) => (event as ToggleEvent).newState === "open" && this.open());
    element("camera-menu").addEventListener("toggle", () => void this.list());
    cameraButton.addEventListener("click", () => this.look(this.shown === "camera" ? false : null));
    screenButton.addEventListener("click", () => this.share());
    screenButton.hidden = !SHARES;
    navigator.mediaDevices?.addEventListener("devicechange", () => void this.list());
  }

  /** A model without pictures has no use for a camera or a screen. */
  learn({ abilities }: Loaded): void {
    const sees = abilities?.includes("image") ?? true;
    element("camera-key").hidden = !sees;
    screenButton.hidden = !sees || !SHARES;
    if (!sees && this.shown !== null) this.look(false);
  }

  show(): void {
    const { shown } = this;
    cameraButton.setAttribute("aria-pressed", String(shown === "camera"));
    cameraButton.title = `Turn the camera ${shown === "camera" ? "off" : "on"}${byTouch() ? "" : " (C)"}`;
    setIcon(cameraButton, shown === "camera" ? "camera" : "camera-off");
    screenButton.setAttribute("aria-pressed", String(shown === "screen"));
  }

  private get shown(): "camera" | "screen" | null {
    const { camera } = this.voice.inputs;
    return camera === null ? null : camera.isScreen ? "screen" : "camera";
  }

  private recall(): void {
    const { handsFree, speaker } = choices();
    this.voice.setHandsFree(handsFree);
    if (speaker) void this.voice.useSpeaker(speaker).catch(() => choose({ speaker: "" })); // it is not here any more
    document.querySelector<HTMLInputElement>(`[name=mode][value=${handsFree ? "hands-free" : "hold"}]`)!.checked = true;
  }

  private open(): void {
    element("try").hidden = this.voice.talking;
    void this.list();
    requestAnimationFrame(() => this.measure());
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

  private look(device: string | null | false): void {
    this.attempt(this.voice.inputs.look(device), "Opening the camera");
  }

  private share(): void {
    const change = this.shown === "screen" ? this.voice.inputs.look(false) : this.voice.inputs.share();
    this.attempt(change, "Sharing the screen");
  }

  private attempt(change: Promise<void>, doing: string): void {
    change.then(
      () => void this.list(),
      (error: unknown) => this.events.trouble(problemOf(error, doing)),
    );
  }

  private async list(): Promise<void> {
    const { inputs } = this.voice;
    const [inputDevices, outputs, cameraDevices] = await Promise.all([real("audioinput"), real("audiooutput"), real("videoinput")]);
    fill(microphones, [BROWSERS, ...inputDevices], inputs.device ?? "", (id) => this.setMicrophone(id || null));
    fill(speakers, [BROWSERS, ...outputs], choices().speaker, (id) => this.setSpeaker(id));
    const off: Choice = { id: "off", name: "Off" };
    const camera = this.shown === "camera" ? (inputs.camera!.device ?? "") : "off";
    fill(cameras, [off, ...cameraDevices], camera, (id) => this.look(id === "off" ? false : id));
    element("speaker-row").hidden = !("setSinkId" in HTMLMediaElement.prototype);
  }

  /** The level of the microphone, while the menu is open; one that is not in use is tried when it is asked for. */
  private measure(): void {
    if (!menu.matches(":popover-open")) return this.trial.close();
    meter.hidden = !this.voice.talking && !this.trial.running;
    const level = Math.min(1, Math.sqrt(Math.max(this.voice.levels().user, this.trial.level())));
    meter.style.setProperty("--level", level.toFixed(3));
    meter.setAttribute("aria-valuenow", String(Math.round(100 * level)));
    requestAnimationFrame(() => this.measure());
  }
}

async function real(kind: MediaDeviceKind): Promise<Choice[]> {
  return (await devices(kind)).filter(({ id }) => id !== "default");
}
