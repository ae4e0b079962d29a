// The loudspeaker's audio thread, block by block: pauses and flushes.

import assert from "node:assert/strict";
import { test } from "node:test";

const reports = [];
let Playback;
globalThis.AudioWorkletProcessor = class {
  port = { postMessage: (report) => reports.push(report) };
};
globalThis.registerProcessor = (_, processor) => (Playback = processor);
globalThis.currentTime = 0;
globalThis.sampleRate = 24_000;
await import("../../web/src/playback.worklet");

/** A loudspeaker with 480 samples at half of full scale; `block` plays the next 128. */
function loudspeaker() {
  const playback = new Playback();
  const order = (kind) => playback.port.onmessage({ data: { kind, item: "a", pcm: new Int16Array(480).fill(16_384) } });
  const block = () => {
    const out = new Float32Array(128);
    playback.process([], [[out]]);
    return out;
  };
  order("samples");
  reports.length = 0;
  return { order, block };
}

test("a pause fades, keeps what is queued, and says how much was heard", () => {
  const { order, block } = loudspeaker();
  assert.ok(block().every((sample) => sample === 0.5));
  order("pause");
  const fade = block();
  assert.equal(fade[0], 0.5);
  assert.ok(fade[95] > 0 && fade[95] < 0.01);
  assert.ok(fade.subarray(96).every((sample) => sample === 0));
  order("samples");
  assert.ok(block().every((sample) => sample === 0));
  const { kind, position } = reports.at(-1);
  assert.deepEqual([kind, position], ["paused", { item: "a", samples: 128 + 96 }]);
  order("resume");
  assert.ok(block().every((sample) => sample === 0.5));
  assert.deepEqual(reports.at(-1).position, { item: "a", samples: 2 * 128 + 96 });
});

test("an answer of 90 seconds, which comes at once, is played to its last sample", () => {
  const { order, block } = loudspeaker();
  const pieces = (90 * sampleRate) / 480;
  for (let n = 1; n < pieces; n++) order("samples");
  assert.ok(!reports.some(({ kind }) => kind === "full"));
  let heard = 0;
  for (let out = block(); out[0] !== 0; out = block()) heard += out.filter((sample) => sample === 0.5).length;
  assert.equal(heard, 90 * sampleRate);
});

test("a flush ends a pause: what was queued is gone, and what comes next sounds", () => {
  const { order, block } = loudspeaker();
  block();
  order("pause");
  block();
  order("flush");
  assert.deepEqual(reports.at(-1).position, { item: "a", samples: 128 + 96 });
  assert.ok(block().every((sample) => sample === 0));
  order("samples");
  assert.ok(block().every((sample) => sample === 0.5));
});
