// Whoever talks to a realtime agent of OpenAI's Agents SDK for JavaScript: what he says, and what he gets.

import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";
import { Feed, LONG, PHRASE, RECALL, TOOL_CALL } from "./part.mjs";

/**
 * `speak()` says the recording into the microphone, `heardS()` is how much of the answers came, in seconds, and
 * `played()` waits until the end of an answer that is done has come too.
 */
export class User {
  report = { errors: [] };
  feed = new Feed();
  calls = [];
  #heardBeforeS = 0; // when the newest response began: what came until then, a receiver may have had it in its buffer

  constructor(transport, { speak, heardS, played = async () => {} }) {
    this.speak = speak;
    this.heardS = heardS;
    this.played = played;
    const getWeather = tool({
      name: "get_weather",
      description: "The weather in a city.",
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }, _context, details) => {
        this.calls.push({ name: "get_weather", arguments: details.toolCall.arguments });
        return `sunny in ${city}`;
      },
    });
    const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be brief.", tools: [getWeather] });
    this.session = new RealtimeSession(agent, {
      transport,
      model: "gpt-realtime",
      tracingDisabled: true,
      config: {
        audio: {
          input: { transcription: { model: "gpt-4o-mini-transcribe" }, turnDetection: { type: "server_vad" } },
        },
      },
    });
    this.session.on("error", ({ error }) => {
      this.report.errors.push(JSON.stringify(error));
    });
    this.session.on("audio_interrupted", () => (this.report.interrupted = true)); // over a WebSocket only
    this.session.on("transport_event", (event) => this.#take(event));
  }

  ask(text) {
    this.session.sendMessage(text);
  }

  /** The next answer to its end. */
  async answer() {
    const { response } = await this.feed.until("response.done");
    if (response.output[0].type === "function_call") return this.answer();
    if (response.status !== "completed") throw new Error(`the response is ${JSON.stringify(response)}`);
    await this.played();
    this.report.transcript = response.output[0].content[0].transcript;
    this.report.audio_s = this.heardS() - this.#heardBeforeS;
  }

  #take(event) {
    switch (event.type) {
      case "response.created":
        this.#heardBeforeS = this.heardS();
        break;
      case "output_audio_buffer.cleared": // over WebRTC, where the server plays
        this.report.interrupted = true;
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.report.heard = event.transcript;
        break;
      case "conversation.item.truncated":
        this.report.cut_ms = event.audio_end_ms;
        break;
    }
    this.feed.push(event.type, event);
  }
}

export const SCENARIOS = {
  async text(user) {
    user.ask(PHRASE);
    await user.answer();
  },
  async voice(user) {
    await Promise.all([user.speak(), user.answer()]);
  },
  async tool(user) {
    user.ask(TOOL_CALL);
    await user.answer();
    [user.report.call] = user.calls;
  },
  async barge_in(user) {
    user.ask(LONG);
    await user.enough();
    const speaking = user.speak();
    const { response } = await user.feed.until("response.done");
    if (response.status !== "cancelled") throw new Error(`the response is ${JSON.stringify(response)}`);
    user.report.interrupted_audio_s = user.heardS();
    await user.answer();
    await speaking;
  },
  async truncate(user) {
    await SCENARIOS.barge_in(user);
    user.ask(RECALL);
    await user.answer();
  },
};
