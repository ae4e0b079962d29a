// OpenAI's client for Node at /v1/responses: create, stream, parse, and a conversation that the server keeps.

import OpenAI from "openai";
import { PHRASE, RECALL, TOOL_CALL, run } from "./part.mjs";

const MODEL = "gpt-4o";
const TOOL = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};

const SCENARIOS = {
  async response(responses) {
    const whole = await responses.create({ model: MODEL, input: PHRASE });
    const pieces = [];
    const stream = responses.stream({ model: MODEL, input: PHRASE });
    stream.on("response.output_text.delta", (event) => pieces.push(event.delta));
    const done = await stream.finalResponse();
    if (pieces.join("") !== whole.output_text || done.output_text !== whole.output_text)
      throw new Error(`streamed: ${JSON.stringify(pieces)}`);
    return { transcript: whole.output_text };
  },
  async response_tool(responses) {
    const asked = await responses.parse({ model: MODEL, input: TOOL_CALL, tools: [TOOL] });
    const [call] = asked.output;
    const result = { type: "function_call_output", call_id: call.call_id, output: "sunny in Oslo" };
    const told = await responses.create({ model: MODEL, input: [result], previous_response_id: asked.id });
    return { transcript: told.output_text, call: { name: call.name, arguments: call.parsed_arguments } };
  },
  async response_next(responses) {
    const first = await responses.create({ model: MODEL, input: PHRASE });
    const second = await responses.create({ model: MODEL, input: RECALL, previous_response_id: first.id });
    await responses.delete(first.id);
    return { transcript: second.output_text };
  },
};

run((task) => {
  const client = new OpenAI({ apiKey: "sk-none", baseURL: `https://${task.base}/v1` });
  return SCENARIOS[task.scenario](client.responses);
});
