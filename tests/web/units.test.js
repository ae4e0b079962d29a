// The page's parts that need no browser: rates, samples, the queue, the protocol. Bundled by Vite, run by Node's own runner;
// `voice.test.js` and `lost_line.test.js` put them together over lines of their own, `captions.test.js` has its own list,
// `markdown.test.js` the texts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RealtimeClient } from "../../web/src/client";
import { Conversation } from "../../web/src/conversation";
import { kindOf, meaningOf, prettyOf, runOf } from "../../web/src/event_summary";
import { FirstSoundClock } from "../../web/src/first_sound";
import { Inputs } from "../../web/src/inputs";
import { merged, picked } from "../../web/src/merge";
import { fromBase64, quantize, toBase64 } from "../../web/src/pcm";
import { CAPACITY, SampleQueue } from "../../web/src/queue";
import { Recording } from "../../web/src/recording";
import { Resampler } from "../../web/src/resample";
import { refusal } from "../../web/src/server";
import { LANGUAGES, snippet } from "../../web/src/snippets";
import { SpokenText } from "../../web/src/spoken_text";
import { Subtitles } from "../../web/src/subtitles";
import { TalkKey } from "../../web/src/talk_key";
import { Tools } from "../../web/src/tools";

import "./captions.test";
import "./lost_line.test";
import "./markdown.test";
import "./playback.test";
import "./voice.test";

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

/** A client whose line is played by the test. */
function talking() {
  const sent = [];
  const told = [];
  const send = (event) => sent.push(event) > 0;
  const events = new Proxy({ send }, { get: (own, name) => own[name] ?? ((...values) => void told.push([name, ...values])) });
  const client = new RealtimeClient(events);
  const say = (type, fields = {}) => client.receive({ type, ...fields });
  return { client, say, sent, told, types: () => sent.splice(0).map(({ type }) => type) };
}

/** Ask a typed question. */
function ask(client, text) {
  client.say({ text });
  client.respond();
}

const created = { response: { id: "r", status: "in_progress" } };
const done = (status) => ({ response: { id: "r", status } });

test("a question asked during an answer waits for its end", () => {
  const { client, say, types } = talking();
  ask(client, "one");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
  say("response.created", created);
  ask(client, "two");
  client.truncate("item", 100);
  ask(client, "three");
  assert.deepEqual(types(), ["response.cancel"]);
  say("response.done", done("cancelled"));
  const waited = ["conversation.item.create", "conversation.item.truncate", "conversation.item.create", "response.create"];
  assert.deepEqual(types(), waited); // one answer to both
});

test("a question that meets the answer to a spoken turn comes behind it", () => {
  const { client, say, sent, told, types } = talking();
  ask(client, "one");
  const code = "conversation_already_has_active_response";
  say("error", { error: { code, message: "an active response", event_id: sent.at(-1).event_id } });
  assert.deepEqual(types(), ["conversation.item.create", "response.create", "response.cancel"]);
  say("response.done", done("cancelled"));
  assert.deepEqual(types(), ["response.create"]);
  assert.deepEqual(told.map(([name]) => name), ["answerDone"]);
});

test("so it does where the server has said first that it answers the spoken turn", () => {
  const { client, say, sent, types } = talking();
  ask(client, "one");
  const [, asked] = sent;
  types();
  say("response.created", created);
  say("error", { error: { code: "conversation_already_has_active_response", message: "active", event_id: asked.event_id } });
  assert.deepEqual(types(), ["response.cancel"]);
  say("response.done", done("cancelled"));
  assert.deepEqual(sent, [asked]);
});

test("what the page itself asks for goes out as it is, beside the user's questions and behind their answers", () => {
  const { client, say, sent, types } = talking();
  ask(client, "one");
  say("response.created", created);
  const own = { type: "response.create", event_id: "mine", response: { conversation: "none", instructions: "Sum it up." } };
  client.pass(own);
  client.respond();
  client.respond();
  types();
  say("response.done", done("completed"));
  assert.deepEqual(sent, [own]);
  say("error", { error: { code: "conversation_already_has_active_response", message: "active", event_id: "mine" } });
  assert.deepEqual(types(), ["response.create"], "the answer that is spoken is not cancelled for it");
  say("response.done", done("completed"));
  assert.deepEqual(sent, [own]);
  say("response.created", created);
  sent.length = 0;
  say("response.done", done("completed"));
  assert.deepEqual(types(), ["response.create"], "one, for all that the user asked");
});

test("what is refused is known to have no answer, and a refused turn says why", () => {
  const { client, say, sent, told } = talking();
  const refuse = (code, event_id) => say("error", { error: { code, message: "no", event_id } });
  const names = () => told.splice(0).map(([name, sentence]) => (name === "refused" ? sentence : name));
  client.commitTurn();
  refuse("conversation_full", sent.at(-1).event_id);
  assert.deepEqual(names(), ["unanswered", "This conversation is full: begin a new one."]);
  say("input_audio_buffer.committed", { item_id: "u" }); // found by the server: that one was nobody's to answer
  assert.deepEqual(names(), []);
  refuse("conversation_full", null);
  assert.deepEqual(names(), ["This conversation is full: begin a new one."], "nobody waits for an answer");
  say("input_audio_buffer.speech_stopped", { item_id: "u" });
  refuse("conversation_full", null); // by the answer that the server would have begun itself
  assert.deepEqual(names(), ["speechStopped", "unanswered", "This conversation is full: begin a new one."]);
  ask(client, "one");
  say("response.created", created);
  refuse("input_audio_buffer_full", null);
  assert.deepEqual(names(), ["answerStarted", "That was longer than the server can listen to at once: pause now and then."]);
  say("response.done", done("cancelled"));
  assert.deepEqual(names(), ["unanswered", "answerDone"], "another client of the session has ended it");
  ask(client, "two");
  say("response.created", created);
  say("input_audio_buffer.speech_stopped", { item_id: "u" });
  say("response.done", done("cancelled"));
  assert.deepEqual(names(), ["answerStarted", "speechStopped", "answerDone"], "it gave way to the answer of a later turn");
  say("response.created", created);
  say("response.done", done("completed"));
  names();
  client.commitTurn();
  client.resumed();
  say("session.updated", { session: {} });
  assert.deepEqual(names(), ["session", "unanswered", "ready"], "the turn is lost with the line");
});

test("nothing of an interrupted answer reaches the user", () => {
  const { client, say, told } = talking();
  const words = { item_id: "i", delta: "more" };
  ask(client, "one");
  say("response.created", created);
  say("response.output_audio_transcript.delta", words);
  say("input_audio_buffer.speech_started", { item_id: "u" });
  say("response.output_audio_transcript.delta", words);
  assert.deepEqual(told.map(([name]) => name), ["answerStarted", "answerText", "speechStarted"]);
  say("response.done", done("cancelled"));
  say("response.created", created);
  say("response.output_audio_transcript.delta", words);
  assert.equal(told.at(-1)[0], "answerText");
});

test("the server's part in the turns is what the session says", () => {
  const { client, say, told } = talking();
  const turns = (turn_detection) => say("session.updated", { session: { audio: { input: { turn_detection } } } });
  const speak = () => {
    told.length = 0;
    say("input_audio_buffer.speech_started", { item_id: "u" });
    say("response.output_audio_transcript.delta", { item_id: "i", delta: "more" });
    say("input_audio_buffer.speech_stopped", { item_id: "u" });
    return told.map(([name]) => name);
  };
  turns({ type: "server_vad", interrupt_response: false, create_response: false });
  ask(client, "one");
  say("response.created", created);
  assert.deepEqual(speak(), ["speechStarted", "answerText", "speechStopped"]);
  turns({ type: "server_vad" });
  assert.deepEqual(speak(), ["speechStarted", "speechStopped"]);
});

test("a cancel that comes too late is no trouble, and a refused question frees the way", () => {
  const { client, say, sent, told, types } = talking();
  say("error", { error: { code: "response_cancel_not_active", message: "nothing to cancel", event_id: "stop_page_1_x" } });
  assert.deepEqual(told, []);
  ask(client, "one");
  say("error", { error: { code: "x", message: "no", event_id: sent.at(-1).event_id } });
  assert.equal(client.answering, false);
  assert.deepEqual(told, [["unanswered"], ["refused", "The server could not answer this: ask again.", "no"]]);
  types();
  ask(client, "two");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
});

test("a marked turn is answered when the server has it, and an empty one is not", () => {
  const { client, say, told, types } = talking();
  client.beginTurn();
  client.commitTurn();
  assert.deepEqual(types(), ["input_audio_buffer.clear", "input_audio_buffer.commit"]);
  say("error", { error: { code: "input_audio_buffer_commit_empty", message: "empty" } });
  assert.deepEqual([types(), told], [[], [["nothingSaid"]]]);
  client.commitTurn();
  say("input_audio_buffer.committed", { item_id: "u" });
  assert.deepEqual(types(), ["input_audio_buffer.commit", "response.create"]);
  assert.deepEqual(told.at(-1), ["committed", "u"]);
  say("response.created", created);
  say("response.done", done("completed"));
  say("input_audio_buffer.committed", { item_id: "v" }); // found by the server, and answered by it
  assert.deepEqual(types(), []);
});

test("a question that waits for the end of an answer as a key is pressed is answered with the turn", () => {
  for (const empty of [false, true]) {
    const { client, say, sent, types } = talking();
    ask(client, "one");
    say("response.created", created);
    ask(client, "two");
    client.beginTurn();
    types();
    say("response.done", done("cancelled"));
    assert.deepEqual(types(), ["conversation.item.create"], "nothing is answered while the key is held");
    client.commitTurn();
    const [{ event_id }] = sent;
    if (empty) say("error", { error: { code: "input_audio_buffer_commit_empty", event_id, message: "empty" } });
    else say("input_audio_buffer.committed", { item_id: "u" });
    assert.deepEqual(types(), ["input_audio_buffer.commit", "response.create"]);
  }
});

/** Two turns that were marked before the server said anything of the first. */
function marking() {
  const both = talking();
  for (let n = 0; n < 2; n++) {
    both.client.beginTurn();
    both.client.commitTurn();
  }
  const commits = both.sent.filter(({ type }) => type === "input_audio_buffer.commit").map(({ event_id }) => event_id);
  both.types();
  return { ...both, commits, empty: (event_id) => both.say("error", { error: { code: "input_audio_buffer_commit_empty", event_id, message: "empty" } }) };
}

test("a marked turn is answered although the server says only then that the one before was empty", () => {
  const { commits, empty, say, told, types } = marking();
  empty(commits[0]);
  assert.deepEqual([types(), told], [[], []], "the second may still be answered");
  say("input_audio_buffer.committed", { item_id: "b" });
  assert.deepEqual([types(), told], [["response.create"], [["committed", "b"]]]);
});

test("two marked turns, of which the server tells late, have one answer", () => {
  const { say, types } = marking();
  say("input_audio_buffer.committed", { item_id: "a" });
  say("input_audio_buffer.committed", { item_id: "b" });
  assert.deepEqual(types(), ["response.create"]);
});

test("of two marked turns the first is answered although the second was empty", () => {
  const { commits, empty, say, told, types } = marking();
  say("input_audio_buffer.committed", { item_id: "a" });
  empty(commits[1]);
  assert.deepEqual([types(), told], [["response.create"], [["committed", "a"]]]);
});

test("no refusal shows a word of the protocol, and a race is not told", () => {
  const { say, told } = talking();
  const refuse = (purpose, code) => say("error", { error: { code, message: "response.x is not y_z", event_id: `${purpose}_page_1_x` } });
  for (const purpose of ["cut", "stop", "turn"]) refuse(purpose, "invalid_value");
  assert.deepEqual(told, []);
  for (const purpose of ["settings", "item", "ask", "else"]) {
    for (const code of ["cannot_update_voice", "context_length_exceeded", "server_error", "never_heard_of"]) refuse(purpose, code);
  }
  assert.equal(told.length, 16);
  for (const [, sentence] of told) assert.match(sentence, /^[A-Z][^_]*\.$/);
});

test("a word comes out as its sound begins, whole, and never before the text is there", () => {
  const words = new SpokenText();
  words.append("One two, thr");
  words.mark([[100, 4], [200, 9], [300, 14]]);
  assert.deepEqual([0, 99, 100, 250].map((ms) => words.until(ms)), ["One", "", " two,", " thr"]);
  words.append("ee four");
  assert.equal(words.until(250), "ee");
  assert.equal(words.next_ms, 300);
  assert.equal(words.until(300), " four");
  assert.equal(words.rest(), "");
});

test("marks count characters, not their halves, and scripts without spaces go sign by sign", () => {
  const words = new SpokenText();
  words.append("😀 ok 你好");
  words.mark([[10, 2], [20, 5], [30, 6]]);
  assert.deepEqual([0, 10, 20, 30].map((ms) => words.until(ms)), ["😀", " ok", " 你", "好"]);
});

test("words keep step with the sound, and what is cut off is never told", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now_ms = 0;
  t.mock.method(performance, "now", () => now_ms);
  const pass = (ms) => {
    now_ms += ms;
    t.mock.timers.tick(ms);
  };
  const told = [];
  const subtitles = new Subtitles((item, text) => told.push(text));
  subtitles.begin("a");
  subtitles.text("a", "one two three");
  subtitles.mark("a", [[100, 4], [200, 8]]);
  assert.deepEqual(told, []);
  subtitles.played({ ms: 0, at_ms: 50, until_ms: 150 }); // heard 50 ms from now: the loudspeaker takes that long
  assert.deepEqual(told, []);
  pass(50);
  assert.deepEqual(told, ["one"]);
  pass(100);
  assert.deepEqual(told, ["one", " two"]);
  pass(200); // the rest of the sound is late
  assert.deepEqual(told, ["one", " two"]);
  subtitles.drop();
  subtitles.played({ ms: 250, at_ms: now_ms, until_ms: 400 });
  assert.deepEqual(told, ["one", " two"]);
});

test("words of a sound that no loudspeaker plays are told after a while", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const told = [];
  const subtitles = new Subtitles((item, text) => told.push(text));
  subtitles.begin("a");
  subtitles.text("a", "one ");
  subtitles.mark("a", [[100, 4]]);
  subtitles.text("a", "two ");
  t.mock.timers.tick(1_900);
  assert.deepEqual(told, []);
  t.mock.timers.tick(200);
  subtitles.text("a", "three");
  assert.deepEqual(told, ["one two ", "three"]);
});

test("words of a sound that has no marks come when that is clear, and from then on at once", () => {
  const told = [];
  const subtitles = new Subtitles((item, text) => told.push(text));
  subtitles.begin("a");
  subtitles.text("a", "one ");
  subtitles.played({ ms: 2000, at_ms: performance.now(), until_ms: 2040 });
  subtitles.text("a", "two");
  subtitles.text("b", "of another, which is not heard here");
  assert.deepEqual(told, ["one ", "two", "of another, which is not heard here"]);
  subtitles.begin("c");
  subtitles.text("c", "no sound came");
  subtitles.flush();
  assert.equal(told.at(-1), "no sound came");
});

test("what a lost line swallowed is asked again once the session goes on, and what came is not", () => {
  const { client, say, sent, types } = talking();
  ask(client, "one");
  const [item] = sent;
  types();
  client.resumed();
  say("session.updated", { session: {} });
  assert.equal(sent[0], item, "by its own name: a server that has it says so, and nobody reads that");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
  say("error", { error: { code: "item_create_duplicate_item_id", event_id: item.event_id, message: "There is one." } });
  say("response.created", created);
  client.resumed();
  say("session.updated", { session: {} });
  assert.deepEqual(types(), [], "an answer to it is under way");
  say("response.done", done("completed"));
  ask(client, "two");
  types();
  say("session.updated", { session: {} });
  assert.deepEqual(types(), [], "new settings are no new line");
  client.cancel();
  client.resumed();
  say("session.updated", { session: {} });
  types();
  assert.equal(client.answering, false, "who stopped it wants no answer");
  ask(client, "what is under way");
  say("response.created", created);
  client.cancel();
  types();
  client.resumed();
  say("session.updated", { session: {} });
  assert.deepEqual(types(), ["response.cancel"], "the line before may have lost it");
  say("response.done", done("cancelled"));
  ask(client, "three");
  assert.deepEqual(types(), ["conversation.item.create", "response.create"]);
});

test("no answer begins while a key is held, and a turn that was taken meanwhile is answered with the next one", () => {
  const { client, say, sent, types, told } = talking();
  client.beginTurn();
  client.commitTurn();
  client.beginTurn();
  types();
  say("input_audio_buffer.committed", { item_id: "a" });
  assert.deepEqual(types(), []);
  client.commitTurn();
  const [{ event_id }] = sent;
  assert.deepEqual(types(), ["input_audio_buffer.commit"]);
  say("error", { error: { code: "input_audio_buffer_commit_empty", event_id, message: "Nothing." } });
  assert.deepEqual(types(), ["response.create"], "the second was empty: the first is still to be answered");
  assert.ok(!told.some(([name]) => name === "nothingSaid"));
});

test("a line that is gone takes with it what waited", () => {
  const { client, say, types } = talking();
  ask(client, "one");
  say("response.created", created);
  ask(client, "two");
  types();
  client.reset();
  assert.equal(client.answering, false);
  assert.deepEqual(types(), []);
});

test("the first sound is told once its parts are known, and again when they come late", () => {
  const told = [];
  const clock = new FirstSoundClock((figure) => told.push(figure));
  const ledger = { ttfa_ms: 50, terms_ms: { talker: 50 } };
  clock.begin("sent", 1000);
  clock.settle(ledger);
  clock.audible(1080);
  assert.deepEqual(told, [{ heard_ms: 80, after: "sent", ledger }]);
  clock.begin("released", 2000);
  clock.audible(2100);
  clock.settle(ledger);
  assert.deepEqual(told.slice(1), [
    { heard_ms: 100, after: "released", ledger: null },
    { heard_ms: 100, after: "released", ledger },
  ]);
  clock.begin("spoken", 3000);
  clock.forget();
  clock.audible(3100);
  assert.equal(told.length, 3);
});

test("a spoken turn's first sound runs from the last word: the silence that ended the turn is part of it", () => {
  const told = [];
  const clock = new FirstSoundClock(({ heard_ms, after }) => told.push([heard_ms, after]));
  const ledger = { ttfa_ms: 50, terms_ms: { talker: 50 }, turn_ms: 320 };
  clock.begin("spoken", 1000);
  clock.audible(1040);
  assert.deepEqual(told, []); // half of the truth would be a better figure than the whole
  clock.settle(ledger);
  clock.begin("spoken", 2000);
  clock.settle(ledger);
  clock.audible(2080);
  clock.begin("spoken", 3000);
  clock.audible(3030);
  clock.settle(null); // of another server
  clock.begin("spoken", 4000);
  clock.settle(null);
  clock.audible(4020);
  assert.deepEqual(told, [[360, "spoken"], [400, "spoken"], [30, "ended"], [20, "ended"]]);
});

test("an answer that sounds before the end of the turn is known, as over a busy call, took no time beyond the silence", () => {
  const told = [];
  const clock = new FirstSoundClock(({ heard_ms, after }) => told.push([heard_ms, after]));
  const ledger = { ttfa_ms: 5, terms_ms: { talker: 5 }, turn_ms: 320 };
  clock.audible(900); // of the answer before
  clock.forget(); // the user speaks
  clock.audible(990);
  clock.begin("spoken", 1000);
  clock.settle(ledger);
  clock.audible(1900); // goes on after a pause
  clock.forget();
  clock.begin("spoken", 3000);
  assert.equal(clock.running, true);
  clock.audible(3010);
  clock.settle(ledger);
  clock.audible(3900);
  clock.begin("sent", 4000);
  assert.equal(clock.running, true);
  assert.deepEqual(told, [[320, "spoken"], [330, "spoken"]]);
});

/** A conversation over a call: its line plays when the test says so. */
function calling({ tellsPlayed = true } = {}) {
  const told = [];
  const nothing = () => {};
  const conversation = new Conversation((what, ...rest) => what === "firstSound" && told.push(rest[0]), { ready: nothing, trouble: nothing, speechStarted: nothing });
  const silenced = [];
  const line = { playing: false, tellsPlayed, send: () => true, resume: nothing, silence: async () => void silenced.push(1) ?? null };
  conversation.line = line;
  const play = (playing) => {
    line.playing = playing;
    conversation.playingChanged();
  };
  const answer = (ledger) => {
    conversation.receive({ type: "input_audio_buffer.speech_stopped", item_id: "said" });
    conversation.receive({ type: "response.created", response: { id: "r", status: "in_progress", output: [] } });
    conversation.receive({ type: "response.done", response: { id: "r", status: "completed", output: [], ...(ledger && { parley: { ledger } }) } });
  };
  return { conversation, told, play, answer, silenced };
}

test("an answer that is complete before it plays, as over a call on a busy machine, is timed all the same", () => {
  const { conversation, told, play, answer } = calling();
  answer({ ttfa_ms: 50, terms_ms: { talker: 50 }, turn_ms: 320 });
  assert.equal(conversation.thinking, true);
  play(true);
  conversation.audible(performance.now() + 40, null);
  assert.equal(told.length, 1);
  assert.equal(told[0].after, "spoken");
  play(false);
  assert.equal(conversation.thinking, false);
});

test("nobody waits for the sound of an answer that has none, or none that can be heard", () => {
  const { conversation, told, play, answer } = calling();
  answer(null);
  assert.equal(conversation.thinking, false);
  answer({ ttfa_ms: 50, terms_ms: { talker: 50 } });
  play(true);
  play(false);
  assert.equal(conversation.thinking, false);
  assert.deepEqual(told, []);
});

test("nobody waits for sound where nothing can be played, as over a socket of an insecure address", () => {
  const { conversation, answer } = calling({ tellsPlayed: false });
  answer({ ttfa_ms: 50, terms_ms: { talker: 50 } });
  assert.equal(conversation.thinking, false);
});

test("nobody waits for an answer that was refused, or that the server leaves to others", () => {
  const { conversation } = calling();
  const said = (...types) => types.forEach((type) => conversation.receive({ type: `input_audio_buffer.${type}`, item_id: "u" }));
  said("speech_started", "speech_stopped");
  assert.equal(conversation.thinking, true);
  conversation.receive({ type: "error", error: { code: "conversation_full", message: "full", event_id: null } });
  assert.equal(conversation.thinking, false);
  conversation.receive({ type: "session.updated", session: { audio: { input: { turn_detection: { create_response: false } } } } });
  said("speech_started", "speech_stopped");
  assert.equal(conversation.thinking, false);
});

test("a refusal beside an answer that is about to sound leaves its clock alone", () => {
  const { conversation, told, play, answer } = calling();
  answer({ ttfa_ms: 50, terms_ms: { talker: 50 }, turn_ms: 320 });
  conversation.receive({ type: "error", error: { code: "invalid_value", message: "no", event_id: null } });
  play(true);
  conversation.audible(performance.now() + 40, null);
  assert.equal(told.length, 1);
});

test("who speaks over an answer silences it, unless the session says otherwise", () => {
  const { conversation, play, silenced } = calling();
  const speak = () => conversation.receive({ type: "input_audio_buffer.speech_started", item_id: "u" });
  play(true);
  conversation.receive({ type: "session.updated", session: { audio: { input: { turn_detection: { interrupt_response: false } } } } });
  speak();
  assert.equal(silenced.length, 0);
  conversation.receive({ type: "session.updated", session: { audio: { input: { turn_detection: {} } } } });
  speak();
  assert.equal(silenced.length, 1);
});

test("an answer that goes on while the user speaks ends without a word on the turn that was spoken meanwhile", () => {
  const { conversation, told, play } = calling();
  const ledger = { ttfa_ms: 50, terms_ms: { talker: 50 }, turn_ms: 320 };
  const say = (type, fields) => conversation.receive({ type, ...fields });
  say("session.updated", { session: { audio: { input: { turn_detection: { interrupt_response: false } } } } });
  say("input_audio_buffer.speech_stopped", { item_id: "before" });
  say("response.created", created);
  play(true);
  conversation.audible(performance.now(), null);
  say("input_audio_buffer.speech_started", { item_id: "u" });
  say("input_audio_buffer.speech_stopped", { item_id: "u" });
  say("response.done", { response: { id: "r", status: "completed", parley: { ledger: { ...ledger, turn_ms: 9_000 } } } });
  play(false);
  assert.equal(conversation.thinking, true, "the user waits for the answer to the second turn");
  say("response.created", created);
  play(true);
  conversation.audible(performance.now() + 40, null);
  say("response.done", { response: { id: "r", status: "completed", parley: { ledger } } });
  assert.deepEqual(told.map((figure) => figure.ledger), [ledger]);
});

test("a stumble on the key goes on with the same turn", (t) => {
  const later = [];
  const told = [];
  t.mock.method(globalThis, "clearTimeout", () => void later.splice(0)); // until the test ends: others have timers, too
  globalThis.window = { setTimeout: (act) => later.push(act) };
  const key = new TalkKey(() => told.push("begin"), () => told.push("end"));
  key.press();
  key.release();
  key.press();
  key.release();
  later.shift()();
  assert.deepEqual(told, ["begin", "end"]);
  key.press();
  key.forget();
  assert.equal(key.held, false);
  assert.deepEqual(told, ["begin", "end", "begin"]);
});

test("who has their share of a server is told so, and is not asked for another key", async () => {
  const told = (code) => new Response(JSON.stringify({ error: { code, message: "The key 'me' has its share." } }), { status: 429 });
  assert.equal((await refusal(told("share_full"), "a key")).code, "full");
  assert.equal((await refusal(told("too_many_wrong_keys"), "a key")).code, "key");
});

test("settings are merged in depth, but for lists, null, and objects of another type", () => {
  const under = { a: { b: { type: "x", old: 1 }, list: [1, 2], kept: { deep: true } }, gone: { c: 1 } };
  const over = { a: { b: { type: "y" }, list: [3], kept: { more: 1 } }, gone: null, left: undefined };
  assert.deepEqual(merged(under, over), { a: { b: { type: "y" }, list: [3], kept: { deep: true, more: 1 } }, gone: null });
  assert.deepEqual(merged({ a: { type: "x", b: 1 } }, { a: { c: 2 } }), { a: { type: "x", b: 1, c: 2 } });
  assert.deepEqual(under.a.list, [1, 2]);
  const whole = { audio: { input: { turns: { type: "x", b: 1 }, rest: 1 } }, more: 2 };
  assert.deepEqual(picked(whole, { audio: { input: { turns: { b: 2 } } } }), { audio: { input: { turns: { type: "x", b: 1 } } } });
});

test("a tool's call ends in one result, whatever the tool does, and in none once its conversation is over", async () => {
  const [results, problems, calls] = [[], [], []];
  let asked = 0;
  const tools = new Tools({
    changed: (call) => calls.push(call),
    result: (id, output) => results.push([id, output]),
    goOn: () => (asked += tools.due()),
    trouble: ({ message }) => problems.push(message),
  });
  const call = (name, call_id, text = "{}") => tools.call({ type: "function_call", id: "", name, call_id, arguments: text });
  tools.add("nothing", {}, () => undefined, {});
  tools.add("throws", {}, async () => Promise.reject(new Error("broken")), {});
  tools.add("circle", {}, () => { const one = {}; return (one.one = one); }, {});
  await call("nothing", "1");
  await call("throws", "2");
  await call("circle", "3");
  await call("nothing", "4", "{half");
  await call("unknown", "5");
  assert.deepEqual(results.slice(0, 2), [["1", "done"], ["2", '{"error":"broken"}']]);
  assert.match(results[2][1], /circular/i);
  assert.match(results[3][1], /no JSON: \{half/);
  assert.equal(results.length, 4);
  assert.equal(problems.length, 3);
  assert.equal(asked, 4);
  const shown = calls.filter(({ callId }) => callId === "2").map(({ name, status, output }) => [name, status, output]);
  assert.deepEqual(shown, [["throws", "running", ""], ["throws", "failed", '{"error":"broken"}']]);

  let signal;
  tools.add("hangs", {}, (_, context) => new Promise(() => (signal = context.signal)), {});
  const [hanging, other] = [call("hangs", "6"), call("nothing", "7")];
  await other;
  assert.equal(asked, 4, "the model goes on when the last of its calls has its result");
  tools.reset();
  await hanging;
  assert.equal(signal.aborted, true);
  assert.equal(results.length, 5);
  assert.throws(() => tools.add("two words", {}, () => 1, {}), /letters, digits/);
  assert.throws(() => tools.add("none", {}, undefined, {}), /no function/);
});

test("a spoken turn's figure is told when the answer sounds, if the server said how long the silence was", () => {
  const told = [];
  const clock = new FirstSoundClock(({ heard_ms, after, ledger }) => told.push([heard_ms, after, ledger]));
  clock.begin("spoken", 1000, 300);
  clock.audible(1080);
  assert.deepEqual(told, [[380, "spoken", null]]);
  const ledger = { ttfa_ms: 50, terms_ms: {}, turn_ms: 300 };
  clock.settle(ledger);
  assert.deepEqual(told[1], [380, "spoken", ledger]);
});

test("words that are not heard yet are told apart from those that are", () => {
  const [heard, coming] = [[], []];
  const subtitles = new Subtitles((_, text) => heard.push(text), (_, text) => coming.push(text));
  subtitles.begin("item");
  subtitles.text("item", "one two three");
  assert.deepEqual([heard, coming], [[], ["one two three"]]);
  subtitles.mark("item", [[0, 0], [60_000, 4]]);
  subtitles.played({ ms: 10, at_ms: performance.now(), until_ms: 1000 });
  assert.deepEqual([heard, coming.at(-1)], [["one"], " two three"]);
  subtitles.flush();
  assert.deepEqual([heard.join(""), coming.at(-1)], ["one two three", ""]);
});

test("events that come in runs share a row, and each event says what it means", () => {
  const delta = { type: "response.output_audio.delta", response_id: "r", item_id: "i", delta: "AAAA" };
  assert.equal(runOf(delta), runOf({ ...delta, delta: "BBBB" }));
  assert.notEqual(runOf(delta), runOf({ ...delta, response_id: "other" }));
  assert.equal(runOf({ type: "response.done" }), null);
  const kinds = ["error", "response.done", "response.output_audio.delta", "response.output_audio_transcript.delta"];
  assert.deepEqual(kinds.map((type) => kindOf({ type })), ["error", "turn", "audio", "text"]);
  const call = { type: "response.output_item.done", item: { type: "function_call", name: "set_timer", arguments: "{}" } };
  assert.equal(meaningOf(call), "set_timer({})");
  assert.equal(meaningOf({ type: "error", error: { message: "no" } }), "no");
  const long = JSON.parse(prettyOf({ type: "x", delta: "a".repeat(5000) }));
  assert.match(long.delta, /5000 characters/);
});

test("a downloaded session has its version, every event in order, and neither sound nor secrets", () => {
  let now_ms = 0;
  const recording = new Recording(() => (now_ms += 5));
  recording.add("in", { type: "session.created", session: { id: "s", parley: { resume_token: "secret-token" } } });
  recording.add("out", { type: "session.update", session: { tools: [{ type: "mcp", authorization: "secret-key" }] } });
  recording.add("in", { type: "response.output_audio.delta", item_id: "i", delta: "A".repeat(400) });
  const lines = recording.text.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(lines[0].parley_session, 1);
  assert.deepEqual(lines.slice(1).map(({ at_ms, direction, event }) => [at_ms, direction, event.type]), [
    [5, "in", "session.created"],
    [10, "out", "session.update"],
    [15, "in", "response.output_audio.delta"],
  ]);
  assert.deepEqual([lines[3].event.delta, lines[3].event.bytes], ["", 300]);
  assert.doesNotMatch(recording.text, /secret/);
});

test("a downloaded session keeps its beginning and no camera frame, however long the microphone was open", () => {
  const recording = new Recording();
  recording.add("in", { type: "session.created", session: { id: "s" } });
  recording.add("out", { type: "parley.camera.frame", image_url: "data:image/jpeg;base64,AAAA" });
  for (let piece = 0; piece < 25_000; piece++) recording.add("out", { type: "input_audio_buffer.append", audio: "A".repeat(1280) });
  recording.add("in", { type: "response.done", response: {} });
  const [, created, frame, sound, done, ...more] = recording.text.trim().split("\n").map((line) => JSON.parse(line).event);
  assert.deepEqual([created.type, done.type, more], ["session.created", "response.done", []]);
  assert.equal(frame.image_url, "");
  assert.deepEqual([sound.audio, sound.bytes], ["", 25_000 * 960]);
});

test("the code for other programs names the server, the voice and the instructions", () => {
  const setup = { server: "https://voice.example.org/", model: "nano", voice: "slt", instructions: 'Say "no", it\'s short' };
  for (const language of LANGUAGES) {
    const code = snippet(language, setup);
    for (const part of ["https://voice.example.org/", "slt", "short"]) assert.ok(code.includes(part), `${language}: ${part}`);
  }
  assert.ok(snippet("curl", setup).includes("it'\\''s"), "the shell's quotes hold");
});

test("a line that is gone before it takes the microphone is shown no camera", async () => {
  const inputs = new Inputs({ changed() {}, lost() {}, trouble() {} });
  inputs.camera = {};
  const shown = [];
  let heard;
  const line = { hear: () => new Promise((resolve) => (heard = resolve)), see: async (camera) => void shown.push(camera) };
  const attached = inputs.attach(line);
  await inputs.attach(null);
  heard();
  await attached;
  assert.deepEqual(shown, []);
});
