// The page's parts that need no browser: rates, samples, the queue, the protocol. Bundled by Vite, run by Node's own runner.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RealtimeClient } from "../../web/src/client";
import { fromBase64, quantize, toBase64 } from "../../web/src/pcm";
import { CAPACITY, SampleQueue } from "../../web/src/queue";
import { Resampler } from "../../web/src/resample";

const TO_HZ = 24_000;

const sine = (hz, rate_hz, samples) => Float32Array.from({ length: samples }, (_, i) => 0.5 * Math.sin((2 * Math.PI * hz * i) / rate_hz));

function resampled(input, from_hz, piece) {
  const resampler = new Resampler(from_hz, TO_HZ);
  const output = [];
  for (let at = 0; at < input.length; at += piece) output.push(...resampler.push(input.subarray(at, at + piece)));
  return output;
}

/** Root mean square of the middle, where the filter has settled. */
function loudness(samples) {
  const middle = samples.slice(samples.length >> 2, -(samples.length >> 2));
  return Math.sqrt(middle.reduce((sum, x) => sum + x * x, 0) / middle.length);
}

for (const from_hz of [8_000, 16_000, 24_000, 44_100, 48_000, 96_000]) {
  test(`${from_hz} Hz to 24 kHz keeps a voice's tone, its length and its place in time`, () => {
    const output = resampled(sine(440, from_hz, from_hz), from_hz, 128);
    assert.ok(Math.abs(output.length - TO_HZ) <= 60, `${output.length} samples`);
    const exact = sine(440, TO_HZ, TO_HZ);
    const error = output.slice(200, -200).map((x, i) => x - exact[i + 200]);
    assert.ok(Math.max(...error.map(Math.abs)) < 0.005, `error ${Math.max(...error.map(Math.abs))}`);
  });
}

test("what 24 kHz can't carry is gone, and does not fold back", () => {
  assert.ok(loudness(resampled(sine(15_000, 48_000, 48_000), 48_000, 128)) < 0.001);
  assert.ok(loudness(resampled(sine(9_000, 48_000, 48_000), 48_000, 128)) > 0.34);
});

test("the pieces in which sound comes make no difference", () => {
  const input = sine(700, 44_100, 20_000);
  const whole = resampled(input, 44_100, input.length);
  for (const piece of [1, 7, 128, 441]) assert.deepEqual(resampled(input, 44_100, piece), whole);
});

test("samples survive base64, and half a sample is dropped", () => {
  const pcm = Int16Array.from({ length: 30_000 }, (_, i) => ((i * 7919) % 65536) - 32768);
  assert.deepEqual(fromBase64(toBase64(pcm)), pcm);
  assert.deepEqual(fromBase64(toBase64(pcm.subarray(3, 5))), pcm.slice(3, 5));
  assert.equal(fromBase64(btoa("abc")).length, 1);
  assert.throws(() => fromBase64("*"));
});

test("what is too loud is clipped", () => {
  assert.deepEqual([-2, -1, 0, 1, 2].map(quantize), [-32767, -32767, 0, 32767, 32767]);
});

test("the queue gives back what it took, in order, and counts by item", () => {
  const queue = new SampleQueue();
  queue.push("a", Int16Array.of(1, 2, 3));
  queue.push("a", Int16Array.of(4));
  queue.push("b", Int16Array.of(5, 6));
  const out = new Float32Array(5);
  assert.equal(queue.read(out), 5);
  assert.deepEqual([...out].map((x) => x * 32768), [1, 2, 3, 4, 5]);
  assert.deepEqual(queue.position, { item: "b", samples: 1 });
  assert.equal(queue.waiting, 1);
  assert.equal(queue.read(out), 1);
  assert.equal(queue.read(out), 0);
  assert.deepEqual(queue.position, { item: "b", samples: 2 });
});

test("a cleared queue keeps its count of what was heard", () => {
  const queue = new SampleQueue();
  queue.push("a", Int16Array.of(1, 2, 3));
  queue.read(new Float32Array(2));
  queue.clear();
  assert.equal(queue.waiting, 0);
  assert.equal(queue.read(new Float32Array(2)), 0);
  assert.deepEqual(queue.position, { item: "a", samples: 2 });
});

test("the queue is bounded, and refuses a piece whole", () => {
  const queue = new SampleQueue();
  assert.ok(queue.push("a", new Int16Array(CAPACITY - 1)));
  assert.ok(!queue.push("a", new Int16Array(2)));
  assert.ok(queue.push("a", new Int16Array(1)));
  assert.equal(queue.waiting, CAPACITY);
});

/** What timers would do, for a test to do it. */
const later = [];

/** A client on a socket that is played by the test. */
function talking() {
  const sent = [];
  const told = [];
  const sockets = [];
  later.length = 0;
  globalThis.clearTimeout = (act) => later.splice(0, later.length, ...later.filter((one) => one !== act));
  globalThis.window = { addEventListener() {}, setTimeout: (act) => later.push(act) && act };
  globalThis.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    bufferedAmount = 0;
    constructor() {
      sockets.push(this);
    }
    send(text) {
      sent.push(JSON.parse(text));
    }
    close() {}
  };
  const events = new Proxy({}, { get: (_, name) => (...values) => void told.push([name, ...values]) });
  const client = new RealtimeClient("ws://here", events);
  client.connect();
  const say = (type, fields = {}) => sockets.at(-1).onmessage({ data: JSON.stringify({ type, ...fields }) });
  say("session.created");
  say("session.updated");
  sent.length = 0;
  told.length = 0;
  return { client, say, sent, told, sockets, types: () => sent.splice(0).map(({ type }) => type) };
}

const created = { response: { id: "r", status: "in_progress" } };
const done = (status) => ({ response: { id: "r", status } });

test("a question asked during an answer waits for its end", () => {
  const { client, say, types } = talking();
  client.ask("one");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
  say("response.created", created);
  client.ask("two");
  client.truncate("item", 100);
  client.ask("three");
  assert.deepEqual(types(), ["response.cancel"]);
  say("response.done", done("cancelled"));
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
  say("response.created", created);
  say("response.done", done("completed"));
  assert.deepEqual(types(), ["conversation.item.truncate", "conversation.item.create", "response.create"]);
});

test("nothing of an interrupted answer reaches the user", () => {
  const { client, say, told } = talking();
  const audio = { item_id: "i", delta: toBase64(Int16Array.of(1)) };
  client.ask("one");
  say("response.created", created);
  say("response.output_audio.delta", audio);
  say("input_audio_buffer.speech_started", { item_id: "u" });
  say("response.output_audio.delta", audio);
  say("response.output_audio_transcript.delta", { item_id: "i", delta: "more" });
  assert.deepEqual(told.map(([name]) => name), ["answerStarted", "answerAudio", "speechStarted"]);
  say("response.done", done("cancelled"));
  say("response.created", created);
  say("response.output_audio.delta", audio);
  assert.equal(told.at(-1)[0], "answerAudio");
});

test("a cancel that comes too late is no trouble, and a refused question frees the way", () => {
  const { client, say, sent, told, types } = talking();
  say("error", { error: { code: "response_cancel_not_active", message: "nothing to cancel" } });
  assert.deepEqual(told, []);
  client.ask("one");
  say("error", { error: { code: "x", message: "no", event_id: sent.at(-1).event_id } });
  assert.equal(client.answering, false);
  assert.deepEqual(told, [["refused", "no"]]);
  types();
  client.ask("two");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
});

test("a lost connection forgets what waited, and comes back", () => {
  const { client, say, told, sockets, types } = talking();
  client.ask("one");
  say("response.created", created);
  client.ask("two");
  types();
  sockets[0].onclose({ code: 1006, reason: "" });
  assert.equal(client.answering, false);
  assert.deepEqual(told.at(-1), ["lost", 500, ""]);
  assert.deepEqual(types(), []);
  later.shift()();
  assert.equal(sockets.length, 2);
  assert.deepEqual(told.at(-1), ["connecting"]);
  sockets[1].onclose({ code: 1006, reason: "" });
  assert.deepEqual(told.at(-1), ["lost", 1000, ""]);
});

test("a refusal is final before the greeting, and a loss like another after it", () => {
  const { told, sockets } = talking();
  sockets[0].onclose({ code: 1008, reason: "too slow" });
  assert.deepEqual(told.at(-1), ["lost", 500, "too slow"]);
  later.shift()();
  sockets[1].onclose({ code: 1008, reason: "no key" });
  assert.deepEqual(told.at(-1), ["lost", null, "no key"]);
  assert.deepEqual(later, []);
});

test("a microphone does not pile up behind a stalled network", () => {
  const { client, sockets, types } = talking();
  sockets[0].bufferedAmount = 1e6;
  client.hear(new Int16Array(480));
  assert.deepEqual(types(), []);
  sockets[0].bufferedAmount = 0;
  client.hear(new Int16Array(480));
  assert.deepEqual(types(), ["input_audio_buffer.append"]);
});
