/**
 * A microphone: one device, open. Its track goes to a call as it is; a socket takes it in 20 ms pieces of 24 kHz PCM.
 *
 * Echo cancellation is on: the answer comes out of a speaker in the same room. Knows nothing of the server.
 */

import captureUrl from "./capture.worklet.ts?worker&url";
import { ask } from "./devices";
import { Meter } from "./meter";

const CLEANED = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };

export class Microphone {
  private readonly source: MediaStreamAudioSourceNode;
  private readonly meter: Meter;
  private node: AudioWorkletNode | null = null;
  private taker: ((pcm: Int16Array) => void) | null = null;

  private constructor(
    readonly track: MediaStreamTrack,
    private readonly context: AudioContext,
  ) {
    this.source = context.createMediaStreamSource(new MediaStream([track]));
    this.meter = Meter.of(this.source);
  }

  /** Asks the user; `onLost` when the device goes away. Throws a Problem. */
  static async open(device: string | null, onLost: () => void): Promise<Microphone> {
    const stream = await ask("audio", { ...CLEANED, ...(device && { deviceId: { exact: device } }) });
    const track = stream.getAudioTracks()[0]!;
    const microphone = new Microphone(track, new AudioContext({ latencyHint: "interactive" }));
    track.addEventListener("ended", onLost, { once: true });
    void microphone.context.resume();
    return microphone;
  }

  get device(): string | null {
    return this.track.getSettings().deviceId ?? null;
  }

  /** Peak at this moment, 0 to 1. */
  level(): number {
    return this.track.enabled ? this.meter.level() : 0;
  }

  /** A muted microphone gives silence. */
  mute(muted: boolean): void {
    this.track.enabled = !muted;
  }

  /** Hands over each piece from now on; null: no more. */
  async capture(onPiece: ((pcm: Int16Array) => void) | null): Promise<void> {
    this.node?.disconnect();
    this.node?.port.close();
    this.node = null;
    this.taker = onPiece;
    if (onPiece === null) return;
    const wanted = () => this.taker === onPiece; // not by another one meanwhile, nor of a device that is gone
    await this.context.audioWorklet.addModule(captureUrl).catch((error: unknown) => {
      if (wanted()) throw error;
    });
    if (!wanted()) return;
    const node = (this.node = new AudioWorkletNode(this.context, "capture", {
      channelCount: 1,
      channelCountMode: "explicit",
      outputChannelCount: [1],
    }));
    node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => onPiece(data);
    // The output is silence; without a way to the destination some browsers would not run the node.
    this.source.connect(node).connect(this.context.destination);
  }

  /** Lets the device go; no piece follows. May be called twice. */
  close(): void {
    this.taker = null;
    this.track.stop();
    this.node?.port.close();
    if (this.context.state !== "closed") void this.context.close();
  }
}
