/**
 * Every step on the way to a conversation, tried one by one: each says in a sentence what it found, or throws the
 * Problem that names what is in the way and the next step.
 */

import { ask, insecure } from "./devices";
import type { LineEvents, Place } from "./line";
import { Problem } from "./problem";
import { health, iceServers } from "./server";
import { openWebRtc } from "./webrtc";
import { greet } from "./websocket";

export interface Step {
  readonly name: string;
  check(place: Place): Promise<string>;
}

export const STEPS: readonly Step[] = [
  { name: "Page", check: secure },
  { name: "Microphone", check: microphone },
  { name: "Server", check: server },
  { name: "Key", check: key },
  { name: "WebSocket", check: socket },
  { name: "WebRTC", check: call },
];

const DEAF: LineEvents = { queued() {}, received() {}, sent() {}, closed() {}, changed() {}, audible() {}, played() {}, trouble() {} };

const KEPT = new AbortController().signal; // a step is tried to its end

async function secure(): Promise<string> {
  if (window.isSecureContext) return "Allowed to use a microphone";
  throw insecure("microphone");
}

async function microphone(): Promise<string> {
  const stream = await ask("audio", {});
  const name = humanName(stream.getAudioTracks()[0]?.label ?? "");
  for (const track of stream.getTracks()) track.stop();
  return name ? `Microphone works · ${name}` : "Microphone works";
}

/** The device's label without its USB id; "" where it is an identifier of the system. */
function humanName(label: string): string {
  const name = label.replace(/ \([\da-f]{4}:[\da-f]{4}\)$/, "");
  return /[_:{}]|\S{20}/.test(name) ? "" : name;
}

async function server(place: Place): Promise<string> {
  const { status, model } = await health(place);
  if (status !== "ready") throw new Problem("starting", `The server is ${status}: wait a moment, then check again.`);
  return model === null ? "Connected" : `Connected · ${model}`;
}

async function key(place: Place): Promise<string> {
  await iceServers(place);
  return place.key === null ? "Not needed" : "Accepted";
}

async function socket(place: Place): Promise<string> {
  const { socket } = await greet(place, {}, KEPT);
  socket.onclose = null;
  socket.close();
  return "Works";
}

async function call(place: Place): Promise<string> {
  const begun_ms = performance.now();
  const line = await openWebRtc(place, new Audio(), DEAF, KEPT);
  line.close();
  return `Works · ${Math.round(performance.now() - begun_ms)} ms`;
}
