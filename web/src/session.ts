/** The session's settings: those that a conversation begins with, in the protocol's words. */

import { merged, type Settings } from "./merge";
import type { SessionSettings, VoiceOptions } from "./voice_events";

/** The haste with which a pause ends the user's turn: `low` waits longest, `auto` is the server's choice. */
export type Eagerness = "low" | "medium" | "high" | "auto";

/** What an answer needs to be heard and shown as it is spoken. */
const OURS: Settings = {
  parley: { resume: true, alignment: true, partials: true, pauses: true },
  output_modalities: ["audio"],
  audio: { input: { transcription: { model: "default" } } },
};

/** The settings that a client is made with; those of `session` come last. */
export function sessionOf({ voice, eagerness = "auto", instructions, session = {} }: VoiceOptions): Settings {
  let all = merged(OURS, turnsBy(eagerness));
  if (voice) all = merged(all, voiceOf(voice));
  if (instructions != null) all = merged(all, { instructions });
  return merged(all, session);
}

/** As they go to the server: with the page's functions, and without turn detection where a key ends the turns. */
export function settled(session: Settings, handsFree: boolean, tools: readonly object[]): Settings {
  const all = handsFree ? session : merged(session, { audio: { input: { turn_detection: null } } });
  return tools.length === 0 ? all : { ...all, tools: [...tools, ...((all["tools"] as object[] | undefined) ?? [])] };
}

export function turnsBy(eagerness: Eagerness): SessionSettings {
  return { audio: { input: { turn_detection: { type: "semantic_vad", eagerness, create_response: true, interrupt_response: true } } } };
}

export function voiceOf(voice: string): SessionSettings {
  return { audio: { output: { voice } } };
}
