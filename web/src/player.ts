/**
 * Plays the answer and knows how much of it was heard.
 *
 * The sound goes through a media element, because that is what every browser's echo canceller listens to. No prebuffer:
 * the first sample plays as soon as it is here. Knows nothing of the server.
 */

import type { Heard } from "./line";
import { Meter } from "./meter";
import { RATE_HZ, SAMPLES_PER_MS } from "./pcm";
import type { Order, Report } from "./playback.worklet";
import { Problem } from "./problem";
import playbackUrl from "./playback.worklet.ts?worker&url";
import type { Position } from "./queue";
import type { Playhead } from "./subtitles";

export interface PlayerEvents {
  /** The item's first audible sample sounds at `at_ms` on performance.now()'s clock. */
  audible(item: string, at_ms: number): void;
  /** So much of the item is heard. */
  played(item: string, head: Playhead): void;
  /** The player began or ran dry: `playing` changed. */
  changed(): void;
  /** More sound came than can be held; some of it is lost. */
  full(): void;
}

const DEAF: PlayerEvents = { audible() {}, played() {}, changed() {}, full() {} };

export class Player {
  private readonly context = new AudioContext({ latencyHint: "interactive", sampleRate: RATE_HZ });
  private readonly output = this.context.createMediaStreamDestination();
  private readonly node = this.build();
  private readonly flushes: ((heard: Heard | null) => void)[] = [];
  private events = DEAF;
  private meter: Meter | null = null;
  private sent = 0;
  private dry = true;

  constructor(readonly element: HTMLAudioElement) {}

  /** On an insecure address browsers have no AudioWorklet: the answer then comes as text only. */
  get able(): boolean {
    return this.context.audioWorklet !== undefined;
  }

  /** Whether samples wait to be played. */
  get playing(): boolean {
    return !this.dry;
  }

  /** Peak of what sounds at this moment, 0 to 1. */
  level(): number {
    return this.dry ? 0 : (this.meter?.level() ?? 0);
  }

  /** Lets sound out; browsers want this called in the handler of a click or a key. */
  async wake(): Promise<void> {
    await Promise.all([this.context.resume(), this.element.srcObject && this.element.play()]);
  }

  /** Plays through this device from now on; the empty string: the browser's choice. Throws a Problem. */
  async use(device: string): Promise<void> {
    try {
      await this.element.setSinkId(device);
    } catch (error) {
      throw new Problem("sound", `This loudspeaker did not open (${String(error)}): choose another.`);
    }
  }

  /** The element plays what is queued from here on. */
  open(events: PlayerEvents): void {
    this.events = events;
    this.element.muted = false;
    this.element.srcObject = this.output.stream;
    void this.context.resume();
    void this.element.play().catch(() => undefined); // not before the user's first click; then `wake` does it
  }

  /** Queues the next samples of `item`. */
  async play(item: string, pcm: Int16Array<ArrayBuffer>): Promise<void> {
    if (pcm.length === 0 || !this.able) return;
    this.sent++;
    this.setDry(false);
    this.post(await this.node, { kind: "samples", item, pcm }, [pcm.buffer]);
  }

  /** Silence at once. What was heard last; null: nothing yet. */
  async flush(): Promise<Heard | null> {
    if (!this.able) return null;
    const node = await this.node;
    return new Promise((resolve) => {
      this.flushes.push(resolve);
      this.post(node, { kind: "flush" });
    });
  }

  /** Silence, and nothing told any more. A call that has the element keeps it. */
  close(): void {
    this.events = DEAF;
    void this.flush();
    if (this.element.srcObject === this.output.stream) this.element.srcObject = null;
  }

  private build(): Promise<AudioWorkletNode> {
    return this.able ? this.load() : new Promise(() => undefined);
  }

  private async load(): Promise<AudioWorkletNode> {
    await this.context.audioWorklet.addModule(playbackUrl);
    const node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }: MessageEvent<Report>) => this.read(data);
    node.connect(this.output);
    this.meter = Meter.of(node);
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
        this.tellPlayed(report.position, report.waiting, this.heardAt_ms(report.time_s));
        return this.setDry(report.waiting === 0 && report.taken === this.sent);
      case "flushed":
        this.setDry(report.taken === this.sent);
        return this.flushes.shift()?.(this.heard(report.position));
      case "full":
        return this.events.full();
    }
  }

  private tellPlayed({ item, samples }: Position, waiting: number, at_ms: number): void {
    this.events.played(item, { ms: samples / SAMPLES_PER_MS, at_ms, until_ms: (samples + waiting) / SAMPLES_PER_MS });
  }

  private setDry(dry: boolean): void {
    if (dry === this.dry) return;
    this.dry = dry;
    this.events.changed();
  }

  /** Sound that has left the queue but is still on its way to the loudspeaker counts as not heard. */
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
