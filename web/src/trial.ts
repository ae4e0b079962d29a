/** A microphone that is only tried: its level is shown, and nothing of it is sent. */

import { Microphone } from "./microphone";

export class Trial {
  private microphone: Microphone | null = null;

  /** Tries this device in the place of the one before. Throws a Problem. */
  async open(device: string | null): Promise<void> {
    this.close();
    const opened = await Microphone.open(device, () => this.close());
    this.close();
    this.microphone = opened;
  }

  /** Peak at this moment, 0 to 1. */
  level(): number {
    return this.microphone?.level() ?? 0;
  }

  /** Lets the device go. May be called twice. */
  close(): void {
    this.microphone?.close();
    this.microphone = null;
  }
}
