/**
 * The microphone as a stream of 20 ms pieces of 24 kHz PCM.
 *
 * Echo cancellation is on: the answer comes out of a speaker in the same room. Knows nothing of the server.
 */

import captureUrl from "./capture.worklet.ts?worker&url";
import { Problem } from "./problem";

const CONSTRAINTS: MediaStreamConstraints = {
  audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
};

export class Microphone {
  private constructor(
    private readonly stream: MediaStream,
    private readonly context: AudioContext,
  ) {}

  /** Asks the user, then hands each piece to `onPiece` until `close`; `onLost` when the device goes away. Throws a Problem. */
  static async open(onPiece: (pcm: Int16Array) => void, onLost: () => void): Promise<Microphone> {
    const stream = await ask();
    const context = new AudioContext({ latencyHint: "interactive" });
    const microphone = new Microphone(stream, context);
    try {
      await microphone.capture(onPiece);
    } catch (error) {
      microphone.close();
      throw error;
    }
    for (const track of stream.getTracks()) track.addEventListener("ended", onLost, { once: true });
    return microphone;
  }

  /** Lets the device go; no piece follows. May be called twice. */
  close(): void {
    for (const track of this.stream.getTracks()) track.stop();
    if (this.context.state !== "closed") void this.context.close();
  }

  private async capture(onPiece: (pcm: Int16Array) => void): Promise<void> {
    await this.context.audioWorklet.addModule(captureUrl);
    const node = new AudioWorkletNode(this.context, "capture", {
      channelCount: 1,
      channelCountMode: "explicit",
      outputChannelCount: [1],
    });
    node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => {
      if (this.context.state !== "closed") onPiece(data);
    };
    // The output is silence; without a way to the destination some browsers would not run the node.
    this.context.createMediaStreamSource(this.stream).connect(node).connect(this.context.destination);
    await this.context.resume();
  }
}

/** The user's consent and the device, or the Problem that names what is in the way. */
async function ask(): Promise<MediaStream> {
  if (!window.isSecureContext) {
    throw new Problem(
      "Browsers allow a microphone only on https or localhost: open this page as http://localhost on the server itself, or type.",
    );
  }
  if (navigator.mediaDevices === undefined) {
    throw new Problem("This browser offers no microphone to pages: use a current Chrome, Firefox or Safari, or type.");
  }
  try {
    return await navigator.mediaDevices.getUserMedia(CONSTRAINTS);
  } catch (error) {
    throw new Problem(REFUSALS[(error as DOMException).name] ?? `The microphone did not open (${String(error)}): try again, or type.`);
  }
}

/** By the DOMException's name (Media Capture and Streams §10.2). */
const REFUSALS: Record<string, string> = {
  NotAllowedError: "The microphone is blocked: allow it beside the page's address, then press Talk again.",
  NotFoundError: "No microphone was found: plug one in, then press Talk again.",
  NotReadableError: "Another program holds the microphone: close that program, then press Talk again.",
};
