/**
 * How much of an answer was heard over a call: by the RTP timestamp of the packet that plays, which the browser tells
 * (WebRTC 1.0 §5.4, getSynchronizationSources), from the one with which the answer began.
 */

import type { Playhead } from "./subtitles";

const RTP_PER_MS = 48; // Opus' clock (RFC 7587 §4.1)
const LOOK_MS = 10; // for the first packet: half of one
const EVERY_MS = 100; // later: a jitter buffer stretches sound by little
const AHEAD_MS = 500; // it plays on for so long, unless it is said otherwise

export class CallPlayhead {
  private timer = 0;

  /** `output_s`: what comes behind the jitter buffer; `tell` takes null where the browser tells nothing. */
  constructor(
    private readonly receiver: RTCRtpReceiver,
    private readonly output_s: () => number,
    private readonly tell: (head: Playhead | null) => void,
  ) {}

  /** An answer begins: the next packet that plays is its first. */
  start(): void {
    this.stop();
    if (typeof this.receiver.getSynchronizationSources !== "function") return this.tell(null);
    this.await(this.playing()?.rtpTimestamp);
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  private await(before: number | undefined): void {
    const first = this.playing()?.rtpTimestamp;
    if (first !== undefined && first !== before) return this.report(first);
    this.timer = window.setTimeout(() => this.await(before), LOOK_MS);
  }

  private report(first: number): void {
    const source = this.playing();
    if (source === undefined) return; // browsers forget it after ten silent seconds
    const { rtpTimestamp, timestamp } = source;
    const ms = ((rtpTimestamp - first) >>> 0) / RTP_PER_MS; // the counter wraps
    const at_ms = timestamp - performance.timeOrigin + this.output_s() * 1000;
    this.tell({ ms, at_ms, until_ms: ms + AHEAD_MS });
    this.timer = window.setTimeout(() => this.report(first), EVERY_MS);
  }

  private playing(): RTCRtpSynchronizationSource | undefined {
    return this.receiver.getSynchronizationSources()[0];
  }
}
