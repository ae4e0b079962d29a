// OpenAI's client for Node, which speaks to no server without TLS: events one by one.

import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { ENOUGH_S, Feed, LONG, PHRASE, RECALL, TOOL_CALL, run, seconds, speak } from "./part.mjs";

const TOOL = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

class User {
  constructor(task) {
    this.task = task;
    const client = new OpenAI({ apiKey: "sk-none", baseURL: `https://${task.base}/v1` });
    this.rt = new OpenAIRealtimeWS({ model: "gpt-realtime" }, client);
    this.feed = new Feed();
    this.report = { errors: [] };
    this.bytes = 0;
    this.rt.on("error", (error) => {
      this.report.errors.push(String(error));
    });
    this.rt.on("response.output_audio.delta", (event) => (this.bytes += Buffer.from(event.delta, "base64").length));
    this.rt.on("response.output_audio_transcript.done", (event) => (this.report.transcript = event.transcript));
    this.rt.on("conversation.item.input_audio_transcription.completed", (event) => (this.report.heard = event.transcript));
    this.rt.on("input_audio_buffer.speech_started", () => (this.report.interrupted = true));
    this.rt.on("event", (event) => this.feed.push(event.type, event));
  }

  async open() {
    await this.feed.until("session.created");
    this.rt.send({
      type: "session.update",
      session: {
        type: "realtime",
        instructions: "Be brief.",
        tools: [TOOL],
        audio: {
          input: { transcription: { model: "whisper-1" }, turn_detection: { type: "server_vad" } },
          output: { voice: "marin" },
        },
      },
    });
    await this.feed.until("session.updated");
  }

  ask(text) {
    this.rt.send({
      type: "conversation.item.create",
      item: { type: "message", role: "user", content: [{ type: "input_text", text }] },
    });
    this.rt.send({ type: "response.create" });
  }

  speak() {
    return speak(this.task, (piece) =>
      this.rt.send({ type: "input_audio_buffer.append", audio: piece.toString("base64") }),
    );
  }

  async answer(status = "completed") {
    const { response } = await this.feed.until("response.done");
    if (response.status !== status) throw new Error(`the response is ${JSON.stringify(response)}`);
    this.report.audio_s = seconds(this.bytes);
    this.bytes = 0;
    return this.report;
  }

  async enough() {
    while (seconds(this.bytes) < ENOUGH_S) this.itemId = (await this.feed.until("response.output_audio.delta")).item_id;
  }

  truncate() {
    const audio_end_ms = ENOUGH_S * 1000;
    this.rt.send({ type: "conversation.item.truncate", item_id: this.itemId, content_index: 0, audio_end_ms });
    this.report.cut_ms = audio_end_ms;
  }
}

const SCENARIOS = {
  async text(user) {
    user.ask(PHRASE);
    await user.answer();
  },
  async voice(user) {
    await Promise.all([user.speak(), user.answer()]);
  },
  async tool(user) {
    user.ask(TOOL_CALL);
    const call = await user.feed.until("response.function_call_arguments.done");
    await user.feed.until("response.done");
    const output = `sunny in ${JSON.parse(call.arguments).city}`;
    user.rt.send({
      type: "conversation.item.create",
      item: { type: "function_call_output", call_id: call.call_id, output },
    });
    user.rt.send({ type: "response.create" });
    await user.answer();
    user.report.call = { name: call.name, arguments: call.arguments };
  },
  async barge_in(user) {
    user.ask(LONG);
    await user.enough();
    const speaking = user.speak();
    await user.answer("cancelled");
    user.report.interrupted_audio_s = user.report.audio_s;
    user.truncate();
    await user.answer();
    await speaking;
  },
  async truncate(user) {
    user.ask(LONG);
    await user.enough();
    user.rt.send({ type: "response.cancel" });
    await user.answer("cancelled");
    user.truncate();
    await user.feed.until("conversation.item.truncated");
    user.ask(RECALL);
    await user.answer();
  },
};

run(async (task) => {
  const user = new User(task);
  await user.open();
  await SCENARIOS[task.scenario](user);
  user.rt.close();
  return user.report;
});
