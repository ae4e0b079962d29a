/** The microphone and the camera that the user chose, and the line that they are on. */

import { Camera } from "./camera";
import type { Line } from "./line";
import { Microphone } from "./microphone";
import { Problem, problemOf } from "./problem";

export interface InputEvents {
  changed(): void;
  /** The microphone went away: nothing more of what the user says is heard. */
  lost(): void;
  trouble(problem: Problem): void;
}

const CAMERA_LOST = new Problem("no-device", "The camera went away: plug it in again, then switch it on.");

export class Inputs {
  microphone: Microphone | null = null;
  camera: Camera | null = null;
  /** The microphone chosen last; null: the browser's choice. */
  device: string | null = null;
  private wish: object | null = null; // for a microphone; the one that still holds
  private glance: object | null = null; // likewise, for a camera
  private muted = false;
  private line: Line | null = null;

  constructor(private readonly events: InputEvents) {}

  /** Whether the microphone is on, or being opened. */
  get wanted(): boolean {
    return this.wish !== null;
  }

  /** Speak through this microphone from now on (null: the browser's choice); the line stays. */
  async use(device: string | null): Promise<void> {
    this.device = device;
    if (this.wanted) await this.listen(device);
  }

  /** Send everything to this line from now on. */
  async attach(line: Line | null): Promise<void> {
    this.line = line;
    await line?.hear(this.microphone);
    if (line === this.line) await line?.see(this.camera); // else it was closed meanwhile, and would send stills for ever
  }

  mute(muted: boolean): void {
    this.muted = muted;
    this.microphone?.mute(muted);
    this.events.changed();
  }

  /** Opens this microphone in the place of the one before. What is in the way is told as trouble. */
  async listen(device: string | null): Promise<void> {
    const wish = (this.wish = {});
    this.device = device;
    this.events.changed();
    try {
      const opened = await Microphone.open(device, () => this.lost(opened));
      if (wish === this.wish) await this.change(opened);
      else opened.close(); // the user thought better of it while the browser asked
    } catch (error) {
      if (wish !== this.wish) return;
      if (this.microphone === null) this.wish = null;
      this.events.trouble(problemOf(error, "Opening the microphone"));
    }
    this.events.changed();
  }

  /** Shows this camera (null: the browser's choice) in the place of the one before; false: none. Throws a Problem. */
  async look(device: string | null | false): Promise<void> {
    await this.see(device === false ? null : (onLost) => Camera.open(device, onLost), () => this.events.trouble(CAMERA_LOST));
  }

  /** Shows the screen, or a part of it that the user chooses, in the place of the camera. Throws a Problem. */
  async share(): Promise<void> {
    await this.see((onLost) => Camera.share(onLost));
  }

  private async see(open: ((onLost: () => void) => Promise<Camera>) | null, told: () => void = () => undefined): Promise<void> {
    const wish = (this.glance = {});
    const lost = () => {
      if (opened !== this.camera) return;
      void this.show(null);
      told();
    };
    const opened = open && (await open(lost));
    if (wish === this.glance) await this.show(opened);
    else opened?.close();
  }

  /** Lets every device go. */
  close(): void {
    this.wish = this.glance = this.line = null;
    this.microphone?.close();
    this.camera?.close();
    this.microphone = this.camera = null;
  }

  private async change(opened: Microphone): Promise<void> {
    const before = this.microphone;
    this.microphone = opened;
    opened.mute(this.muted);
    try {
      await this.line?.hear(opened);
    } finally {
      before?.close();
    }
  }

  private async show(camera: Camera | null): Promise<void> {
    this.camera?.close();
    this.camera = camera;
    this.events.changed();
    await this.line?.see(camera);
  }

  private lost(microphone: Microphone): void {
    if (microphone !== this.microphone) return;
    this.wish = this.microphone = null;
    void this.line?.hear(null);
    microphone.close();
    this.events.lost();
    this.events.trouble(new Problem("no-device", "The microphone went away: plug it in again, then tap to talk."));
    this.events.changed();
  }
}
