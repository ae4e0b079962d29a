// A whole client over lines that the test plays: calls, sound, the element, and when devices are let go.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Trial } from "../../web/src/trial";
import { begun, calling, CREATED, cut, opening, SESSION, settled, SOUND, talking } from "./fakes";

test("a call that was given up leaves the loudspeaker to the line that took its place, and hangs up", async (t) => {
  const { voice, browser } = opening(t, { transport: "webrtc" });
  voice.connect();
  await settled();
  const { call } = browser;
  voice.transport = "websocket";
  voice.reconnect();
  await settled();
  await begun(browser.socket);
  const plays = browser.element.srcObject;
  assert.ok(plays);
  await call.fail();
  await settled();
  assert.equal(browser.sockets.length, 1);
  assert.equal(browser.element.srcObject, plays);
  assert.ok(browser.requests.at(-1).endsWith("/hangup"));
});

test("a call has the loudspeaker from its beginning on, with what came by then, and leaves it at its end", async (t) => {
  const { voice, browser } = opening(t, { transport: "webrtc" });
  const states = [];
  voice.on("session", () => states.push(voice.transportUsed));
  voice.connect();
  await settled();
  const { call } = browser;
  await call.channel.say("session.created", SESSION);
  assert.equal(browser.element.srcObject, null);
  await call.open();
  assert.deepEqual(states, ["webrtc"]);
  assert.ok(browser.element.srcObject);
  voice.end();
  assert.equal(browser.element.srcObject, null);
});

test("who ends while they stand in line has left it, and a key that is still to come opens nothing", async (t) => {
  const { voice, browser } = opening(t);
  voice.connect();
  await settled();
  const [ghost] = browser.sockets;
  await ghost.say("parley.queue.updated", { position: 1 });
  voice.end();
  await settled();
  assert.equal(ghost.readyState, 3);
  assert.deepEqual(browser.requests, [], "nobody asks why");
  let give;
  voice.key = () => new Promise((resolve) => (give = resolve));
  voice.connect();
  await settled();
  voice.end();
  give("a key");
  await settled();
  assert.equal(browser.sockets.length, 1);
});

test("who hangs up while the line is lost hears no more of the answer", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.cut();
  assert.ok(browser.element.srcObject);
  voice.end();
  await settled();
  assert.equal(browser.element.srcObject, null);
  assert.deepEqual(browser.speaker.orders, ["samples", "flush"]);
});

test("the loudspeaker pauses while the server judges what the user says, and a question ends the pause", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.say("parley.output_audio.paused");
  assert.equal(voice.state, "speaking");
  await browser.socket.say("parley.output_audio.resumed");
  assert.deepEqual(browser.speaker.orders, ["samples", "pause", "resume"]);
  await browser.socket.say("parley.output_audio.paused");
  await browser.socket.say("input_audio_buffer.speech_started", { item_id: "u" });
  await browser.socket.say("parley.output_audio.resumed");
  assert.deepEqual(browser.speaker.orders.slice(3), ["pause", "flush"], "nothing is left to go on with");
});

test("a session that goes on over a new line says itself when a pause ends", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.say("parley.output_audio.paused");
  const socket = await cut(t, browser);
  await begun(socket);
  assert.deepEqual(browser.speaker.orders, ["samples", "pause"], "the session goes on, and says when");
  await socket.say("parley.output_audio.resumed");
  assert.deepEqual(browser.speaker.orders, ["samples", "pause", "resume"]);
});

test("a socket that is lost takes no more pictures", async (t) => {
  const { voice, browser } = await talking(t);
  t.mock.timers.enable({ apis: ["setInterval"] });
  let stills = 0;
  void voice.inputs.look(null);
  await browser.allow();
  voice.inputs.camera.still = () => void stills++ ?? null;
  t.mock.timers.tick(1_000);
  assert.equal(stills, 1);
  await browser.socket.cut();
  t.mock.timers.tick(5_000);
  assert.equal(stills, 1);
});

test("a loudspeaker that does not open is one problem, the answer comes as text, and the next conversation tries again", async (t) => {
  const { voice, browser, problems } = opening(t);
  browser.worklets = Promise.reject(new Error("blocked"));
  voice.connect();
  await settled();
  await begun(browser.socket);
  assert.deepEqual(problems, ["sound"]);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  assert.equal(voice.state, "thinking");
  await browser.socket.say("response.done", { response: { id: "r", status: "completed", parley: { ledger: { ttfa_ms: 50, terms_ms: {} } } } });
  assert.equal(voice.state, "ready");
  voice.end();
  browser.worklets = Promise.resolve();
  voice.connect();
  await settled();
  await begun(browser.socket);
  await browser.socket.say("response.output_audio.delta", SOUND);
  assert.equal(voice.state, "speaking");
  assert.deepEqual(problems, ["sound"]);
});

for (const opens of [true, false]) {
  test(`an answer that is complete before the loudspeaker ${opens ? "opens" : "fails to open"} is told as a whole at its end`, async (t) => {
    const { voice, browser, problems } = opening(t);
    let load, fail;
    browser.worklets = new Promise((...ends) => ([load, fail] = ends));
    const finals = [];
    voice.on("text", (who, _item, text, final) => who === "answer" && final && finals.push(text));
    voice.connect();
    await settled();
    await begun(browser.socket);
    await browser.socket.say("response.created", CREATED);
    await browser.socket.say("response.output_item.added", { item: { id: "a", type: "message" } });
    await browser.socket.say("response.output_audio_transcript.delta", { item_id: "a", delta: "It is ten." });
    await browser.socket.say("response.output_audio.delta", SOUND);
    await browser.socket.say("response.done", { response: { id: "r", status: "completed" } });
    assert.deepEqual([voice.state, finals], ["speaking", []]);
    if (opens) load();
    else fail(new Error("blocked"));
    await settled();
    assert.equal(voice.state, opens ? "speaking" : "ready");
    if (opens) await browser.speaker.drain();
    assert.equal(voice.state, "ready");
    assert.deepEqual(finals, ["It is ten."]);
    assert.deepEqual(problems, opens ? [] : ["sound"]);
  });
}

test("a client that was never used, or has ended, holds nothing, and may begin again", async (t) => {
  const { voice, browser } = opening(t);
  assert.equal(browser.contexts.length, 0);
  for (const nth of [1, 2]) {
    voice.connect();
    await settled();
    await begun(browser.socket);
    assert.equal(browser.online.size, 1);
    voice.end();
    assert.equal(browser.online.size, 0);
    assert.deepEqual(browser.contexts.map(({ state }) => state), Array(nth).fill("closed"));
  }
});

test("a conversation that ends before its loudspeaker may start, as on a page that nobody has clicked, is no problem", async (t) => {
  const { voice, browser, problems } = opening(t);
  browser.clicked = false;
  voice.connect();
  await settled();
  await begun(browser.socket);
  voice.end();
  await settled();
  assert.deepEqual(problems, []);
});

test("a device that the user allows when nobody wants it any more is let go", async (t) => {
  const { voice, browser } = await talking(t);
  const trial = new Trial();
  void trial.open(null);
  trial.close();
  assert.equal((await browser.allow()).readyState, "ended");
  void trial.open(null);
  const tried = await browser.allow();
  assert.equal(tried.readyState, "live");
  trial.close();
  assert.equal(tried.readyState, "ended");

  void voice.inputs.look(null);
  void voice.inputs.look(false);
  assert.equal((await browser.allow()).readyState, "ended");
  void voice.inputs.look(null);
  const seen = await browser.allow();
  assert.equal(seen.readyState, "live");
  void voice.inputs.look("another");
  const instead = await browser.allow();
  assert.deepEqual([seen.readyState, instead.readyState], ["ended", "live"]);
  void voice.inputs.look("a third");
  voice.end();
  assert.equal((await browser.allow()).readyState, "ended");
  assert.equal(instead.readyState, "ended");
  assert.equal(voice.inputs.camera, null);
});

test("who stops while a question waits for the end of an answer gets none to it", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  voice.ask("two");
  voice.stop();
  browser.socket.types();
  await browser.socket.say("response.done", { response: { id: "r", status: "cancelled" } });
  assert.deepEqual(browser.socket.types(), ["conversation.item.create"]);
  voice.ask("three");
  assert.deepEqual(browser.socket.types(), ["conversation.item.create", "response.create"]);
});

test("an answer that is paused goes on although the microphone, over which it was, has gone away", async (t) => {
  const { voice, browser } = await talking(t);
  void voice.inputs.listen(null);
  const track = await browser.allow();
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.say("parley.output_audio.paused");
  await browser.socket.say("parley.output_audio.resumed");
  await browser.socket.say("parley.output_audio.paused");
  browser.socket.types();
  track.lost();
  await settled();
  assert.deepEqual(browser.socket.types(), ["input_audio_buffer.append"], "the silence that the server waits for");
});

test("a microphone gives way to the next one also where the line does not take that", async (t) => {
  const { voice, browser, problems } = opening(t, { transport: "webrtc" });
  voice.start();
  const first = await browser.allow();
  await browser.call.open();
  browser.call.takes = () => Promise.reject(new Error("closed"));
  void voice.inputs.use("another");
  const second = await browser.allow();
  assert.deepEqual([first.readyState, second.readyState], ["ended", "live"]);
  assert.deepEqual(problems, ["refused"]);
  voice.reconnect();
  void voice.inputs.use("a third");
  await browser.allow();
  assert.deepEqual(problems, ["refused"], "the line before is not asked any more");
});

for (const hint of ["line", "session"]) {
  test(`a line that a listener to "${hint}" closes at once is asked to carry nothing`, async (t) => {
    const { voice, browser, problems } = opening(t, { transport: "webrtc" });
    const forget = voice.on(hint, () => voice.end());
    voice.connect();
    await settled();
    const { call } = browser;
    call.takes = () => Promise.reject(new Error("closed"));
    await call.channel.say("session.created", SESSION);
    await call.open();
    assert.equal(voice.state, "idle");
    assert.equal(browser.element.srcObject, null);
    forget();
    voice.start();
    await browser.allow();
    assert.equal(voice.talking, true);
    assert.deepEqual(problems, []);
  });
}

test("a microphone that goes away in mid-speech ends the turn: over a socket by the longest silence that is waited for", async (t) => {
  const { voice, browser, problems } = await talking(t);
  voice.start();
  const track = await browser.allow();
  track.lost();
  assert.deepEqual(browser.socket.types(), [], "nobody spoke");
  voice.start();
  const again = await browser.allow();
  await browser.socket.say("input_audio_buffer.speech_started", { item_id: "u" });
  assert.equal(voice.state, "hearing");
  again.lost();
  assert.equal(voice.state, "ready");
  assert.deepEqual(problems, ["no-device", "no-device"]);
  const [silence] = browser.socket.sent;
  assert.equal(silence.type, "input_audio_buffer.append");
  assert.match(silence.audio, /^A{512000}$/);
});

test("the element's button hangs up whatever the microphone does, and without one nobody is called", async (t) => {
  const { element, browser, part } = calling(t);
  const [button, problem] = [part("button"), part("problem")];
  await button.click();
  assert.equal(element.voice.state, "connecting");
  assert.equal(button.attributes["aria-pressed"], "true");
  await button.click();
  assert.equal(element.voice.state, "idle");
  browser.asked.length = 0;

  await button.click();
  await begun(browser.socket);
  browser.asked.shift().refuse(new DOMException("no", "NotAllowedError"));
  await settled();
  assert.equal(element.voice.state, "idle");
  assert.equal(button.attributes["aria-pressed"], "false");
  assert.match(problem.textContent, /allow it/);

  await button.click();
  await begun(browser.socket);
  assert.equal(problem.textContent, "");
  const track = await browser.allow();
  assert.equal(element.voice.state, "listening");
  track.lost();
  assert.equal(element.voice.state, "idle");
});

test("the element goes on with its microphone where another one does not open", async (t) => {
  const { element, browser, part } = calling(t);
  await part("button").click();
  await begun(browser.socket);
  const track = await browser.allow();
  void element.voice.inputs.use("another");
  browser.asked.shift().refuse(new DOMException("unplugged", "NotFoundError"));
  await settled();
  assert.notEqual(part("problem").textContent, "");
  assert.deepEqual([element.voice.state, track.readyState], ["listening", "live"]);
});

test("the element's button opens the microphone of a conversation that was typed", async (t) => {
  const { element, browser, part } = calling(t);
  element.voice.connect();
  await settled();
  await begun(browser.socket);
  assert.equal(part("button").attributes["aria-pressed"], "false");
  await part("button").click();
  await browser.allow();
  assert.equal(element.voice.state, "listening");
  assert.equal(part("button").attributes["aria-pressed"], "true");
  await part("button").click();
  assert.equal(element.voice.state, "idle");
});

test("the element shows an answer's words in full, also where the user's come behind the first of them", async (t) => {
  const { element, browser, part } = calling(t);
  await part("button").click();
  await begun(browser.socket);
  const said = (delta) => browser.socket.say("response.output_audio_transcript.delta", { item_id: "a", delta });
  await browser.socket.say("response.created", CREATED);
  await said("It is ");
  await browser.socket.say("conversation.item.input_audio_transcription.completed", { item_id: "u", transcript: "What time is it?" });
  assert.equal(part("words").textContent, "What time is it?");
  await said("ten.");
  assert.equal(part("words").textContent, "It is ten.");
  element.voice.end();
});
