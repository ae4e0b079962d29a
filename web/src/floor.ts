/** The floor: the microphone is open always but when it is muted (hands-free), or while the key is held (push to talk). */

import { TalkKey } from "./talk_key";

export interface FloorEvents {
  /** Whether the microphone is closed now. */
  closed(closed: boolean): void;
  /** A turn that the key marks begins, or ended at `at_ms`. */
  begin(): void;
  end(at_ms: number): void;
}

export class Floor {
  private isMuted = false;
  private isHandsFree = true;
  private readonly key: TalkKey;

  constructor(private readonly events: FloorEvents) {
    this.key = new TalkKey(
      () => events.begin(),
      (at_ms) => {
        this.tell();
        events.end(at_ms);
      },
    );
  }

  get muted(): boolean {
    return this.isMuted;
  }

  get handsFree(): boolean {
    return this.isHandsFree;
  }

  get held(): boolean {
    return this.key.held;
  }

  mute(muted: boolean): void {
    this.isMuted = muted;
    this.tell();
  }

  setHandsFree(handsFree: boolean): void {
    this.isHandsFree = handsFree;
    this.tell();
  }

  press(): void {
    this.key.press();
    this.tell();
  }

  release(): void {
    this.key.release();
  }

  /** No turn is marked any more. */
  letGo(): void {
    this.key.forget();
    this.tell();
  }

  private tell(): void {
    this.events.closed(this.isHandsFree ? this.isMuted : !this.key.held);
  }
}
