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
  /** Sound is lost, or none can be played. */
  trouble(problem: Problem): void;
}

const DEAF: PlayerEvents = { audible() {}, played() {}, changed() {}, trouble() {} };
const FULL = new Problem("sound", "The answer is longer than this page can hold: some of it is lost, ask for a shorter one.");

export class Player {
  private readonly context = new AudioContext({ latencyHint: "interactive", sampleRate: RATE_HZ });
  private readonly output = this.context.createMediaStreamDestination();
  private readonly flushes: ((heard: Heard | null) => void)[] = [];
  private events = DEAF;
  private problem: Problem | null = null; // nothing can be played
  private meter: Meter | null = null;
  private sent = 0;
  private dry = true;
  private paused = false;
  private readonly node = this.build(); // behind the fields that it uses

  constructor(readonly element: HTMLAudioElement) {}

  /** Else the answer comes as text only: on an insecure address browsers have no AudioWorklet, and one may not load. */
  get able(): boolean {
    return this.context.audioWorklet !== undefined && this.problem === null;
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

  /** The element plays what is queued from here on. */
  open(events: PlayerEvents): void {
    this.events = events;
    this.element.muted = false;
    this.element.srcObject = this.output.stream;
    for (const sounds of [this.context.resume(), this.element.play()]) {
      sounds.catch(() => undefined); // not before the user's first click; then `wake` does it
    }
    if (this.problem !== null) events.trouble(this.problem);
  }

  /** Queues the next samples of `item`: they wait from now on, also where the audio thread's code is still to come. */
  async play(item: string, pcm: Int16Array<ArrayBuffer>): Promise<void> {
    if (pcm.length === 0 || !this.able) return;
    this.sent++;
    this.setDry(false);
    const node = await this.node;
    if (node !== null) this.post(node, { kind: "samples", item, pcm }, [pcm.buffer]);
  }

  /** Silence at once; what is queued waits for `resume`. */
  async pause(): Promise<void> {
    await this.setPaused(true);
  }

  /** Go on after a pause. */
  async resume(): Promise<void> {
    if (this.paused) await this.setPaused(false);
  }

  /** Silence at once. What was heard last; null: nothing yet. */
  async flush(): Promise<Heard | null> {
    this.paused = false;
    const node = await this.node;
    if (node === null) return null;
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

  /** Ends the audio thread, too; nothing can be played any more. */
  dispose(): void {
    this.close();
    void this.context.close();
  }

  /** null: nothing can be played. */
  private async build(): Promise<AudioWorkletNode | null> {
    if (!this.able) return null;
    try {
      return await this.load();
    } catch (error) {
      this.problem = new Problem("sound", "The loudspeaker did not open, so answers come as text: end the conversation and start again.", error);
      this.dry = true; // what waited is lost
      this.events.trouble(this.problem);
      this.events.changed();
      return null;
    }
  }

  private async load(): Promise<AudioWorkletNode> {
    await this.context.audioWorklet.addModule(playbackUrl);
    const node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }: MessageEvent<Report>) => this.read(data);
    node.connect(this.output);
    this.meter = Meter.of(node);
    return node;
  }

  private async setPaused(paused: boolean): Promise<void> {
    this.paused = paused;
    const node = await this.node;
    if (node !== null) this.post(node, { kind: paused ? "pause" : "resume" });
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
      case "paused":
        return this.tellPlayed(report.position, 0, this.heardAt_ms(report.time_s));
      case "flushed":
        this.setDry(report.taken === this.sent);
        return this.flushes.shift()?.(this.heard(report.position));
      case "full":
        return this.events.trouble(FULL);
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

/** Plays through this device from now on; the empty string: the browser's choice. Throws a Problem. */
export async function playThrough(element: HTMLAudioElement, device: string): Promise<void> {
  try {
    await element.setSinkId(device);
  } catch (error) {
    throw new Problem("sound", `This loudspeaker did not open (${String(error)}): choose another.`);
  }
}
