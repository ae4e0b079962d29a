/** A request of the page's own to the server, with the key. */

import type { VoiceClient } from "./library";

/** Throws an Error with the server's own words when the answer is none of 2xx. */
export async function request(voice: VoiceClient, path: string, init: RequestInit = {}): Promise<Response> {
  const { server, key } = voice.place;
  const headers = { ...init.headers, ...(key !== null && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(new URL(path, server), { ...init, headers });
  if (response.ok) return response;
  const body = (await response.json().catch(() => null)) as { error?: { message?: string } } | null;
  throw new Error(body?.error?.message ?? `HTTP ${response.status}`);
}
