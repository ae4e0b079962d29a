/** An event of the wire in a few words: its kind, its meaning, and which events fold into one row. Knows no element. */

import type { ClientEvent, ServerEvent } from "./library";

export type Direction = "in" | "out";
export type AnyEvent = ServerEvent | ClientEvent;
export type Kind = "audio" | "text" | "turn" | "tool" | "error" | "session";

const MAX_CHARS = 200; // of one field: audio and pictures are longer

/** Events that come in long runs. */
const RUNS = /\.delta$|\.append$|^parley\.(camera\.frame|output_audio\.alignment|playout\.delay|input_audio_transcription\.partial)$/;

export function kindOf({ type }: AnyEvent): Kind {
  if (type === "error" || type.endsWith(".failed")) return "error";
  if (type.startsWith("session.") || type.startsWith("parley.queue")) return "session";
  if (/function_call|mcp|tool/.test(type)) return "tool";
  if (/transcript|text/.test(type)) return "text";
  if (/audio\.|audio_buffer\.append|alignment|camera|playout/.test(type)) return "audio";
  return "turn";
}

/** Events with the same key are one row; null: a row of its own. */
export function runOf(event: AnyEvent): string | null {
  if (!RUNS.test(event.type)) return null;
  const { response_id = "", item_id = "" } = event as { response_id?: string; item_id?: string };
  return `${event.type}/${response_id}/${item_id}`;
}

/** The part of an event that says what happened; empty where its name says it all. */
export function meaningOf(event: AnyEvent): string {
  const fields = event as unknown as Record<string, any>;
  const item = fields["item"];
  const said = fields["transcript"] ?? fields["text"] ?? fields["error"]?.message;
  if (typeof said === "string") return said;
  if (item?.type === "function_call") return `${item.name}(${item.arguments ?? ""})`;
  if (item?.type === "function_call_output") return String(item.output);
  if (item !== undefined) return [item.role, textIn(item.content)].filter(Boolean).join(": ");
  if (fields["response"] !== undefined) return fields["response"].status ?? "";
  if (fields["audio_end_ms"] !== undefined) return `at ${fields["audio_end_ms"]} ms`;
  return "";
}

/** The pieces of a run that can be read as one text. */
export function pieceOf(event: AnyEvent): string {
  const { type, delta } = event as { type: string; delta?: unknown };
  return typeof delta === "string" && !/audio\.delta$/.test(type) ? delta : "";
}

/** As indented JSON; long texts are told by their length. */
export function prettyOf(event: AnyEvent): string {
  return JSON.stringify(event, (_, value: unknown) => shortened(value), 2);
}

/** On one line, without its run's sound. */
export function lineOf(event: AnyEvent): string {
  return JSON.stringify(event, (_, value: unknown) => shortened(value));
}

function shortened(value: unknown): unknown {
  if (typeof value !== "string" || value.length <= MAX_CHARS) return value;
  return `${value.slice(0, 24)}… ${value.length} characters`;
}

function textIn(content: unknown): string {
  if (!Array.isArray(content)) return "";
  return content.map(({ text, transcript, type }) => text ?? transcript ?? type).join(" ");
}
