// A whole client whose line is lost and found again: what the session goes on with.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RealtimeClient } from "../../web/src/client";
import { CREATED, cut, SESSION, settled, SOUND, talking } from "./fakes";

/** What the client sent since the last look: a question by its text. */
const told = (socket) => socket.sent.splice(0).map(({ type, item }) => item?.content[0].text ?? type);

test("what a lost socket swallowed is asked again by the first word of the next, and settings follow", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  const [item] = browser.socket.sent;
  const socket = await cut(t, browser);
  voice.setInstructions("Be brief.");
  await socket.say("session.updated", SESSION);
  assert.equal(socket.sent.find(({ type }) => type === "conversation.item.create").event_id, item.event_id);
  assert.deepEqual(socket.types().sort(), ["conversation.item.create", "response.create", "session.update"]);
  await socket.say("session.updated", SESSION);
  assert.deepEqual(socket.types(), []);
});

test("what is asked while the line is lost is asked once", async (t) => {
  const { voice, browser } = await talking(t);
  const socket = await cut(t, browser);
  voice.ask("one");
  assert.deepEqual(told(socket), []);
  await socket.say("session.updated", SESSION);
  assert.deepEqual(told(socket), ["one", "response.create"]);
});

test("an answer that the page itself asks for while the line is lost is asked for once", async (t) => {
  const { voice, browser } = await talking(t);
  const socket = await cut(t, browser);
  voice.send({ type: "response.create", response: { instructions: "Sum it up." } });
  await socket.say("session.updated", SESSION);
  assert.deepEqual(told(socket), ["response.create"]);
});

test("a question that waited for the end of an answer, of which only the next line tells, is asked once", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  voice.ask("two");
  assert.deepEqual(told(browser.socket), ["one", "response.create", "response.cancel"]);
  const socket = await cut(t, browser);
  await socket.say("response.done", { response: { id: "r", status: "cancelled" } });
  assert.deepEqual(told(socket), []);
  await socket.say("session.updated", SESSION);
  assert.deepEqual(told(socket), ["two", "response.create"]);
});

test("a lost question and the next one, which was typed meanwhile, both reach the server", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  const socket = await cut(t, browser);
  voice.ask("two");
  await socket.say("session.updated", SESSION);
  assert.deepEqual(told(socket), ["one", "response.create", "response.cancel"]);
  await socket.say("response.created", CREATED);
  await socket.say("response.done", { response: { id: "r", status: "cancelled" } });
  assert.deepEqual(told(socket), ["two", "response.create"]);
});

test("a result that a tool gave while the line was lost goes out with the next one's first word", async (t) => {
  const { voice, browser } = await talking(t);
  let give;
  voice.tool("wait", {}, () => new Promise((resolve) => (give = resolve)));
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_item.done", { item: { id: "f", type: "function_call", name: "wait", call_id: "c", arguments: "{}" } });
  await browser.socket.say("response.done", { response: { id: "r", status: "completed" } });
  const socket = await cut(t, browser);
  give("now");
  await settled();
  await socket.say("session.updated", SESSION);
  assert.deepEqual(socket.types(), ["conversation.item.create", "response.create"]);
});

test("what is asked instead of a lost turn's answer, as to functions' results, is asked once", () => {
  const sent = [];
  const own = { send: ({ type }) => sent.push(type) > 0, unanswered: () => client.respond() };
  const client = new RealtimeClient(new Proxy(own, { get: (events, name) => events[name] ?? (() => {}) }));
  client.commitTurn();
  client.resumed();
  client.receive({ type: "session.updated", ...SESSION });
  assert.deepEqual(sent, ["input_audio_buffer.commit", "response.create"]);
});

test("a network that comes back hastens the next attempt, takes the place of one that hangs, and leaves an open line", async (t) => {
  const { browser } = await talking(t);
  const hanging = await cut(t, browser);
  for (const hurry of browser.online) hurry();
  await settled();
  assert.deepEqual([browser.sockets.length, hanging.readyState], [3, 3]);
  await browser.socket.say("session.updated", SESSION);
  for (const hurry of browser.online) hurry();
  await settled();
  assert.deepEqual([browser.sockets.length, browser.socket.readyState], [3, 1]);
  assert.deepEqual(browser.requests, [], "nobody asks why the one that hung was closed");
});

test("who stops an answer while the line is lost hears no more of it, and the server learns how much they heard", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  const socket = await cut(t, browser);
  voice.stop();
  await settled();
  assert.deepEqual(browser.speaker.orders, ["samples", "flush"]);
  await socket.say("response.output_audio.delta", SOUND);
  assert.deepEqual(browser.speaker.orders, ["samples", "flush"]);
  await socket.say("session.updated", SESSION);
  assert.deepEqual(socket.types(), ["response.cancel"]);
  await socket.say("response.done", { response: { id: "r", status: "cancelled" } });
  const [cut_off] = socket.sent;
  assert.deepEqual([cut_off.type, cut_off.item_id, cut_off.audio_end_ms], ["conversation.item.truncate", "a", 100]);
});

test("who stops an answer whose sound came over the line before stops that", async (t) => {
  const { voice, browser } = await talking(t);
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.say("response.done", { response: { id: "r", status: "completed" } });
  const socket = await cut(t, browser);
  await socket.say("session.updated", SESSION);
  assert.equal(voice.state, "speaking");
  voice.stop();
  await settled();
  assert.notEqual(voice.state, "speaking");
  assert.deepEqual(socket.types(), ["conversation.item.truncate"]);
});


test("an answer whose sound runs dry while the next line opens is told as a whole", async (t) => {
  const { voice, browser } = await talking(t);
  const finals = [];
  voice.on("text", (who, _item, text, final) => who === "answer" && final && finals.push(text));
  voice.ask("one");
  await browser.socket.say("response.created", CREATED);
  await browser.socket.say("response.output_item.added", { item: { id: "a", type: "message" } });
  await browser.socket.say("response.output_audio_transcript.delta", { item_id: "a", delta: "It is ten." });
  await browser.socket.say("response.output_audio.delta", SOUND);
  await browser.socket.say("response.done", { response: { id: "r", status: "completed" } });
  const socket = await cut(t, browser);
  await browser.speaker.drain();
  assert.deepEqual(finals, []);
  await socket.say("session.updated", SESSION);
  assert.deepEqual(finals, ["It is ten."]);
});
