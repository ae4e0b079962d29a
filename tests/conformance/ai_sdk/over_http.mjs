// Vercel's AI SDK with its provider for OpenAI, at another address; names of models and voices are the hosted ones.

import { createOpenAI } from "@ai-sdk/openai";
import { generateSpeech, generateText, streamText, transcribe } from "ai";
import { PHRASE, WORDS, run, wav } from "./part.mjs";

const SCENARIOS = {
  async chat(openai) {
    const model = openai.chat("gpt-4o");
    const { text } = await generateText({ model, prompt: PHRASE });
    const pieces = [];
    for await (const piece of streamText({ model, prompt: PHRASE }).textStream) pieces.push(piece);
    if (pieces.join("") !== text) throw new Error(`streamed: ${JSON.stringify(pieces)}`);
    return { transcript: text };
  },
  async speech(openai) {
    const { audio } = await generateSpeech({ model: openai.speech("tts-1"), text: WORDS });
    return { sound: audio.base64 };
  },
  async transcription(openai, task) {
    const heard = await transcribe({ model: openai.transcription("whisper-1"), audio: wav(task) });
    if (heard.segments.length !== 1) throw new Error(`segments: ${JSON.stringify(heard.segments)}`);
    return { heard: heard.text };
  },
};

run((task) => {
  const openai = createOpenAI({ baseURL: `http://${task.base}/v1`, apiKey: "sk-none" });
  return SCENARIOS[task.scenario](openai, task);
});
