/** A microphone that is only tried: its level is shown, and nothing of it is sent. */

import { Microphone } from "./microphone";

export class Trial {
  private microphone: Microphone | null = null;
  private wish: object | null = null; // for a microphone; the one that still holds

  /** Tries this device in the place of the one before. Throws a Problem. */
  async open(device: string | null): Promise<void> {
    this.close();
    const wish = (this.wish = {});
    const opened = await Microphone.open(device, () => this.close());
    if (wish === this.wish) this.microphone = opened;
    else opened.close(); // the user thought better of it while the browser asked
  }

  get running(): boolean {
    return this.microphone !== null;
  }

  /** Peak at this moment, 0 to 1. */
  level(): number {
    return this.microphone?.level() ?? 0;
  }

  /** Lets the device go. May be called twice. */
  close(): void {
    this.wish = null;
    this.microphone?.close();
    this.microphone = null;
  }
}
