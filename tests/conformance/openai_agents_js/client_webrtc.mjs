// The Agents SDK for JavaScript over WebRTC, on libwebrtc: a microphone that is always on, and a sink that listens.

import { readFileSync } from "node:fs";
import { OpenAIRealtimeWebRTC } from "@openai/agents-realtime";
import wrtc from "@roamhq/wrtc";
import { ENOUGH_S, run, sleep } from "./part.mjs";
import { SCENARIOS, User } from "./user.mjs";

const { MediaStream, RTCPeerConnection, nonstandard } = wrtc;
Object.assign(globalThis, { RTCPeerConnection });

const RATE_HZ = 24_000;
const FRAME = RATE_HZ / 100; // libwebrtc takes 10 ms at a time
const AUDIBLE = 32768 * 10 ** (-45 / 20);
const JITTER_MS = 300; // what the receiver may still hold when the server has played all

/** Sends 10 ms every 10 ms for as long as the program runs: what it was given to say, or silence. */
class Microphone {
  #source = new nonstandard.RTCAudioSource();
  #saying = new Int16Array(0);
  #said = () => {};
  track = this.#source.createTrack();

  constructor() {
    const begun = performance.now();
    let sent = 0;
    setInterval(() => {
      for (; begun + sent * 10 < performance.now(); sent++) this.#send();
    }, 5);
  }

  /** Until all of it was sent, and a second of silence after it. */
  async say(samples) {
    this.#saying = samples;
    await new Promise((resolve) => (this.#said = resolve));
    await sleep(1000);
  }

  #send() {
    const samples = new Int16Array(FRAME);
    samples.set(this.#saying.subarray(0, FRAME));
    this.#saying = this.#saying.subarray(FRAME);
    if (!this.#saying.length) this.#said();
    this.#source.onData({ samples, sampleRate: RATE_HZ, bitsPerSample: 16, channelCount: 1, numberOfFrames: FRAME });
  }
}

/** What a page gets from its own server, which has the key. */
async function clientSecret(task) {
  const session = { type: "realtime", model: "gpt-realtime" };
  const response = await fetch(`http://${task.base}/v1/realtime/client_secrets`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: "Bearer sk-none" },
    body: JSON.stringify({ session }),
  });
  return (await response.json()).value;
}

run(async (task) => {
  let heardS = 0;
  let heardEnough;
  const enough = new Promise((resolve) => (heardEnough = resolve));
  const microphone = new Microphone();
  const audioElement = {
    set srcObject(stream) {
      const sink = new nonstandard.RTCAudioSink(stream.getAudioTracks()[0]);
      sink.ondata = ({ samples, sampleRate, channelCount }) => {
        const rms = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
        if (rms > AUDIBLE) heardS += samples.length / channelCount / sampleRate;
        if (heardS >= ENOUGH_S) heardEnough();
      };
    },
  };
  const transport = new OpenAIRealtimeWebRTC({
    baseUrl: `http://${task.base}/v1/realtime/calls`,
    mediaStream: new MediaStream([microphone.track]),
    audioElement,
  });
  const speech = readFileSync(task.speech);
  const user = new User(transport, {
    speak: () => microphone.say(new Int16Array(speech.buffer, speech.byteOffset, speech.length / 2)),
    heardS: () => heardS,
    played: async () => {
      await user.feed.until("output_audio_buffer.stopped");
      await sleep(JITTER_MS);
    },
  });
  user.enough = () => enough;
  await user.session.connect({ apiKey: await clientSecret(task) });
  await SCENARIOS[task.scenario](user);
  user.session.close();
  return user.report;
});
