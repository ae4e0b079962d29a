/**
 * Plays the answer and knows how much of it was heard.
 *
 * The sound goes through a media element, because that is what every browser's echo canceller listens to. No prebuffer:
 * the first sample plays as soon as it is here. Knows nothing of the server.
 */

import { RATE_HZ, SAMPLES_PER_MS } from "./pcm";
import type { Order, Report } from "./playback.worklet";
import playbackUrl from "./playback.worklet.ts?worker&url";
import type { Position } from "./queue";

export interface PlayerEvents {
  /** The item's first audible sample sounds at `at_ms` on performance.now()'s clock. */
  audible(item: string, at_ms: number): void;
  /** The player began or ran dry: `playing` changed. */
  changed(): void;
  /** More sound came than can be held; some of it is lost. */
  full(): void;
}

/** How much of an item the listener has heard. */
export interface Heard {
  readonly item: string;
  readonly ms: number;
}

export class Player {
  private readonly context = new AudioContext({ latencyHint: "interactive", sampleRate: RATE_HZ });
  private readonly node: Promise<AudioWorkletNode>;
  private readonly flushes: ((heard: Heard | null) => void)[] = [];
  private sent = 0;
  private dry = true;

  constructor(
    private readonly element: HTMLAudioElement,
    private readonly events: PlayerEvents,
  ) {
    this.node = this.build();
  }

  /** Whether samples wait to be played. */
  get playing(): boolean {
    return !this.dry;
  }

  /** Wakes the sound; browsers want this called in the handler of a click or a key. */
  async wake(): Promise<void> {
    await Promise.all([this.context.resume(), this.node.then(() => this.element.play())]);
  }

  /** Queues the next samples of `item`. */
  async play(item: string, pcm: Int16Array<ArrayBuffer>): Promise<void> {
    if (pcm.length === 0) return;
    this.sent++;
    this.setDry(false);
    this.post(await this.node, { kind: "samples", item, pcm }, [pcm.buffer]);
  }

  /** Silence at once. What was heard last; null: nothing yet. */
  async flush(): Promise<Heard | null> {
    const node = await this.node;
    return new Promise((resolve) => {
      this.flushes.push(resolve);
      this.post(node, { kind: "flush" });
    });
  }

  private async build(): Promise<AudioWorkletNode> {
    await this.context.audioWorklet.addModule(playbackUrl);
    const node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    const output = this.context.createMediaStreamDestination();
    node.port.onmessage = ({ data }: MessageEvent<Report>) => this.read(data);
    node.connect(output);
    this.element.srcObject = output.stream;
    return node;
  }

  private post(node: AudioWorkletNode, order: Order, transfer: Transferable[] = []): void {
    node.port.postMessage(order, transfer);
  }

  private read(report: Report): void {
    switch (report.kind) {
      case "audible":
        return this.events.audible(report.item, this.heardAt_ms(report.time_s));
      case "position":
        return this.setDry(report.waiting === 0 && report.taken === this.sent);
      case "flushed":
        this.setDry(report.taken === this.sent);
        return this.flushes.shift()?.(this.heard(report.position));
      case "full":
        return this.events.full();
    }
  }

  private setDry(dry: boolean): void {
    if (dry === this.dry) return;
    this.dry = dry;
    this.events.changed();
  }

  /** What has left the queue but is still on its way to the loudspeaker counts as not heard. */
  private heard(position: Position | null): Heard | null {
    if (position === null) return null;
    const played_ms = position.samples / SAMPLES_PER_MS;
    return { item: position.item, ms: Math.max(0, Math.floor(played_ms - this.latency_ms)) };
  }

  private heardAt_ms(contextTime_s: number): number {
    return performance.now() + (contextTime_s - this.context.currentTime) * 1000 + this.latency_ms;
  }

  private get latency_ms(): number {
    return (this.context.outputLatency || 0) * 1000; // Safari reports none
  }
}
