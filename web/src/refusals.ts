/** The server's refusals in the user's words: a sentence that ends with the next step, without any word of the protocol. */

import type { Refused } from "./wire";

/** The purpose of a client's event; its id begins with it. */
export type Purpose = "settings" | "item" | "ask" | "cut" | "turn" | "stop";

const SENTENCES: Record<string, string> = {
  cannot_update_voice: "This conversation keeps its voice: begin a new one to hear the other.",
  context_length_exceeded: "This conversation has become too long for the model: begin a new one.",
  conversation_full: "This conversation is full: begin a new one.",
  input_audio_buffer_full: "That was longer than the server can listen to at once: pause now and then.",
  server_error: "The server failed at this; the conversation goes on. Try it again.",
  server_shutting_down: "The server is being shut down: wait a moment.",
  session_expired: "This conversation has lasted as long as the server allows: a new one begins.",
  too_many_responses: "Too many answers are under way: wait until one of them ends.",
};

const BY_PURPOSE: Record<Purpose, string | null> = {
  settings: "The server did not take the new settings: choose others.",
  item: "The server did not take this: make it shorter, or choose another picture.",
  ask: "The server could not answer this: ask again.",
  cut: null, // of an answer that the server has forgotten, or that was over
  turn: null, // nothing was said, or the server ended the turn by itself
  stop: null, // the answer was over
};

const OTHER = "The server did not do what the page asked for: try again. The events tell more.";

/** Names an event that is sent for this. */
export function idFor(purpose: Purpose, number: number): string {
  return `${purpose}_page_${number}_${Math.random().toString(36).slice(2, 10)}`;
}

/** The sentence for the user; null: a race that does no harm, since what was wanted is so already. */
export function sentenceOf({ code, event_id }: Refused): string | null {
  const purpose = event_id?.split("_page_")[0] ?? "";
  if (HARMLESS.has(code ?? "")) return null;
  return SENTENCES[code ?? ""] ?? (purpose in BY_PURPOSE ? BY_PURPOSE[purpose as Purpose] : OTHER);
}

/** Codes of wishes that came too late, or that the client repeats by itself. */
const HARMLESS: ReadonlySet<string> = new Set([
  "conversation_already_has_active_response",
  "input_audio_buffer_commit_empty",
  "item_create_duplicate_item_id",
  "response_cancel_not_active",
]);
