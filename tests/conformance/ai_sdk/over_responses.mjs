// Vercel's AI SDK with its provider for OpenAI, as `openai("…")` gives a model: it asks /v1/responses.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { PHRASE, RECALL, TOOL_CALL, run } from "./part.mjs";

const SCENARIOS = {
  async response(model) {
    const { text, usage } = await generateText({ model, prompt: PHRASE });
    const pieces = [];
    for await (const piece of streamText({ model, prompt: PHRASE }).textStream) pieces.push(piece);
    if (pieces.join("") !== text) throw new Error(`streamed: ${JSON.stringify(pieces)}`);
    if (!(usage.totalTokens > 0)) throw new Error(`usage: ${JSON.stringify(usage)}`);
    return { transcript: text };
  },
  async response_tool(model) {
    const calls = [];
    const get_weather = tool({
      description: "The weather in a city.",
      inputSchema: jsonSchema({
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
        additionalProperties: false,
      }),
      execute: ({ city }) => {
        calls.push({ name: "get_weather", arguments: { city } });
        return `sunny in ${city}`;
      },
    });
    const asked = { model, prompt: TOOL_CALL, tools: { get_weather }, stopWhen: stepCountIs(3) };
    const { text } = await generateText(asked);
    const stream = streamText(asked);
    if ((await stream.text) !== text) throw new Error(`streamed: ${await stream.text}`);
    return { transcript: text, call: calls[0] };
  },
  async response_next(model) {
    const question = { role: "user", content: PHRASE };
    const first = await generateText({ model, messages: [question] });
    const messages = [question, ...first.response.messages, { role: "user", content: RECALL }];
    const { text } = await generateText({ model, messages });
    return { transcript: text };
  },
};

run((task) => {
  const openai = createOpenAI({ baseURL: `http://${task.base}/v1`, apiKey: "sk-none" });
  return SCENARIOS[task.scenario](openai("gpt-4o"));
});
