/**
 * How long the sound of a call waits here before it is heard: in the jitter buffer, by the browser's own count, and in
 * the output. The server guesses it otherwise, and cuts what was interrupted by its guess.
 */

const FIRST_MS = 400; // after an answer began: enough packets for a mean
const EVERY_MS = 1_000;
const WORTH_MS = 5; // a smaller change moves no word

interface Count {
  readonly delay_s: number;
  readonly samples: number;
}

export class PlayoutDelay {
  private timer = 0;
  private before: Count = { delay_s: 0, samples: 0 };
  private told_ms = -WORTH_MS;

  /** `output_s`: what comes behind the jitter buffer; `tell` takes the whole, when it has changed. */
  constructor(
    private readonly receiver: RTCRtpReceiver,
    private readonly output_s: () => number,
    private readonly tell: (delay_ms: number) => void,
  ) {}

  /** An answer plays, or does no more. */
  watch(playing: boolean): void {
    clearTimeout(this.timer);
    if (playing) this.measureIn(FIRST_MS);
  }

  private measureIn(ms: number): void {
    this.timer = window.setTimeout(() => {
      void this.measure();
      this.measureIn(EVERY_MS);
    }, ms);
  }

  private async measure(): Promise<void> {
    const { delay_s, samples } = await this.count();
    const played = samples - this.before.samples;
    const waited_s = delay_s - this.before.delay_s;
    this.before = { delay_s, samples };
    if (played <= 0) return;
    const delay_ms = Math.round(1000 * (waited_s / played + this.output_s()));
    if (Math.abs(delay_ms - this.told_ms) < WORTH_MS) return;
    this.told_ms = delay_ms;
    this.tell(delay_ms);
  }

  /** Since the call began: how long all samples together waited, and how many they were. */
  private async count(): Promise<Count> {
    for (const report of (await this.receiver.getStats()).values() as Iterable<Record<string, unknown>>) {
      if (report["type"] !== "inbound-rtp") continue;
      return { delay_s: Number(report["jitterBufferDelay"] ?? 0), samples: Number(report["jitterBufferEmittedCount"] ?? 0) };
    }
    return this.before;
  }
}
