/** The same model and voice from code, in three languages. Knows no element. */

export type Language = "Python" | "JavaScript" | "curl";

export interface Setup {
  /** The server's root, with a slash at its end. */
  readonly server: string;
  readonly model: string;
  readonly voice: string;
  readonly instructions: string;
}

export const LANGUAGES: readonly Language[] = ["Python", "JavaScript", "curl"];

const QUESTION = "What can you do?";

/** The key is never part of it. */
export function snippet(language: Language, setup: Setup): string {
  return { Python: python, JavaScript: javascript, curl }[language](setup);
}

function messages({ instructions }: Setup): object[] {
  const system = instructions ? [{ role: "system", content: instructions }] : [];
  return [...system, { role: "user", content: QUESTION }];
}

function python(setup: Setup): string {
  const { server, model, voice } = setup;
  return `# pip install openai
import base64
from openai import OpenAI

client = OpenAI(base_url=${text(`${server}v1`)}, api_key="your key, or anything")
answer = client.chat.completions.create(
    model=${text(model)},
    modalities=["text", "audio"],
    audio={"voice": ${text(voice)}, "format": "wav"},
    messages=${JSON.stringify(messages(setup))},
)
audio = answer.choices[0].message.audio
print(audio.transcript)
open("answer.wav", "wb").write(base64.b64decode(audio.data))
`;
}

function javascript({ server, voice, instructions }: Setup): string {
  const told = instructions ? `, instructions: ${text(instructions)}` : "";
  return `import { VoiceClient } from ${text(`${server}voice.js`)};

const voice = new VoiceClient({ voice: ${text(voice)}${told} });
voice.on("text", (who, item, text, final) => final && console.log(who, text));
voice.on("problem", (problem) => problem && console.error(problem.message));
button.onclick = () => (voice.talking ? voice.end() : voice.start());
`;
}

function curl(setup: Setup): string {
  const body = {
    model: setup.model,
    modalities: ["text", "audio"],
    audio: { voice: setup.voice, format: "wav" },
    messages: messages(setup),
  };
  return `curl ${setup.server}v1/chat/completions \\
  -H "Authorization: Bearer $PARLEY_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'
`;
}

function text(value: string): string {
  return JSON.stringify(value);
}
