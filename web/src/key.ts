/** Short-lived keys, from a server of the page's own. Knows no Realtime server. */

import { Problem } from "./problem";
import type { Key } from "./voice_events";

/** The key that a `POST` to this address answers: as text, or as `value` of an object, as `/v1/realtime/client_secrets` gives it. */
export function keyFrom(address: string | URL): () => Promise<string> {
  return async () => {
    const response = await fetch(address, { method: "POST" });
    if (!response.ok) throw new Error(`${address} answered ${response.status}`);
    const text = (await response.text()).trim();
    const key = text.startsWith("{") ? (JSON.parse(text) as { value?: unknown }).value : text;
    if (typeof key !== "string" || key === "") throw new Error(`${address} answered without a key`);
    return key;
  };
}

/** Throws a Problem. */
export async function keyOf(key: Key): Promise<string | null> {
  if (typeof key !== "function") return key;
  try {
    return await key();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Problem("no-key", `This page got no key for the voice server (${reason}): check its own server.`, error);
  }
}
