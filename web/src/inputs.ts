/** The microphone and the camera that the user chose, and the line that they are on. */

import { Camera } from "./camera";
import type { Line } from "./line";
import { Microphone } from "./microphone";
import { Problem, problemOf } from "./problem";

export interface InputEvents {
  changed(): void;
  trouble(problem: Problem): void;
}

export class Inputs {
  microphone: Microphone | null = null;
  camera: Camera | null = null;
  /** The microphone chosen last; null: the browser's choice. */
  device: string | null = null;
  private wish: object | null = null; // for a microphone; the one that still holds
  private muted = false;
  private line: Line | null = null;

  constructor(private readonly events: InputEvents) {}

  /** Whether the microphone is on, or being opened. */
  get wanted(): boolean {
    return this.wish !== null;
  }

  /** The microphone in use, or chosen; null: the browser's choice. */
  get chosen(): string | null {
    return this.microphone?.device ?? this.device;
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
    await line?.see(this.camera);
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
    const camera = device === false ? null : await Camera.open(device, () => void this.look(false));
    this.camera?.close();
    this.camera = camera;
    await this.line?.see(camera);
    this.events.changed();
  }

  /** Lets every device go. */
  close(): void {
    this.wish = this.line = null;
    this.microphone?.close();
    this.camera?.close();
    this.microphone = this.camera = null;
  }

  private async change(opened: Microphone): Promise<void> {
    const before = this.microphone;
    this.microphone = opened;
    opened.mute(this.muted);
    await this.line?.hear(opened);
    before?.close();
  }

  private lost(microphone: Microphone): void {
    if (microphone !== this.microphone) return;
    this.wish = this.microphone = null;
    void this.line?.hear(null);
    microphone.close();
    this.events.trouble(new Problem("no-device", "The microphone went away: plug it in again, then tap to talk."));
    this.events.changed();
  }
}
