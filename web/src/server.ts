/** The server's word about itself over plain HTTP, and why it takes no conversation. */

import { isLoopback, type Place } from "./line";
import { Problem } from "./problem";
import type { Loaded } from "./wire";

const TIMEOUT_MS = 5_000;
const NO_KEY = "This server needs a key. Enter it to continue.";
const WRONG_KEY = "The server does not take this key, which is wrong or has expired. Enter another.";

export interface Health {
  readonly status: string;
  readonly model: string | null;
  /** Of a server with several models. */
  readonly models?: Readonly<Record<string, { readonly status: string; readonly error?: string }>>;
}

/** Throws a Problem when there is no answer. */
export async function health(place: Place): Promise<Health> {
  const response = await get(place, "health");
  const body: unknown = await response.json().catch(() => null);
  if (typeof body !== "object" || body === null || !("status" in body)) {
    throw new Problem("unreachable", `Something else answers at ${place.server.host}: check the address.`);
  }
  return body as Health;
}

/** The ICE servers that a call may use; none where the server knows no such route. Throws a Problem: no key, no server. */
export async function iceServers(place: Place): Promise<RTCIceServer[]> {
  const response = await get(place, "v1/realtime/ice-servers");
  if (response.status === 401 || response.status === 403) throw await refusal(response, place.key);
  if (!response.ok) return [];
  const body = (await response.json()) as { ice_servers?: RTCIceServer[]; iceServers?: RTCIceServer[] };
  return body.ice_servers ?? body.iceServers ?? [];
}

/**
 * The model of a place, or the server's default one; null where the server does not say, or asks for another key.
 * Throws a Problem when nothing answers.
 */
export async function loaded(place: Place): Promise<Loaded | null> {
  const response = await get(place, "v1/models");
  const body = (await response.json().catch(() => null)) as { data?: { id?: string; parley?: Loaded }[] } | null;
  const data = (response.ok && body?.data) || [];
  const model = data.find(({ id }) => id === place.model) ?? data[0];
  const models = data.flatMap(({ id, parley }) => (id && parley ? [id] : []));
  return model === undefined ? null : { ...model.parley, ...(model.id && { model: model.id }), models };
}

/** The Problem in an HTTP answer that is none of 2xx, in the protocol's shape of errors. */
export async function refusal(response: globalThis.Response, key: string | null): Promise<Problem> {
  const body = (await response.json().catch(() => null)) as { error?: { message?: string; code?: string } } | null;
  const reason = body?.error?.message ?? `HTTP ${response.status}`;
  switch (response.status) {
    case 401:
      return new Problem("key", key === null ? NO_KEY : WRONG_KEY);
    case 403:
      return new Problem("origin", `The server refuses this page (${reason})`);
    case 404:
    case 405:
    case 501:
      return new Problem("no-calls", "the server takes no WebRTC calls.");
    case 429: // too many wrong keys; or this key, or this address, has its share of a server that has others
      return body?.error?.code === "too_many_wrong_keys" ? new Problem("key", reason) : busy(body?.error?.code, reason);
    case 503:
      return busy(body?.error?.code, reason);
    default:
      return new Problem("refused", `The server refused (${reason})`);
  }
}

function busy(code: string | undefined, reason: string): Problem {
  const full = code === undefined || code.endsWith("full");
  return full ? new Problem("full", `The server has no room now (${reason})`) : new Problem("starting", reason);
}

const NO_SOCKET =
  "The server opened no conversation. It may be full: try again in a moment. A proxy in front of it must pass the headers Upgrade and Connection on.";

/** A browser does not tell why it got no WebSocket: ask around. `reason` is what the close said, if anything. */
export async function whyRefused(place: Place, reason: string): Promise<Problem> {
  try {
    const { status, model, models } = await health(place);
    const own = models?.[place.model ?? ""] ?? models?.[model ?? ""];
    if (own && own.status !== "ready") {
      return new Problem("starting", own.error ?? `The model is ${own.status}: wait a moment, or choose another one.`);
    }
    if (status !== "ready") return new Problem("starting", `The server is ${status}: wait a moment.`);
    await iceServers(place);
    const asked = await get(place, "v1/realtime/ice-servers", { method: "POST" }); // which names the page's origin, as a socket does
    if (asked.status === 403) return await refusal(asked, place.key);
  } catch (problem) {
    return problem as Problem;
  }
  if (reason) return new Problem("full", `The server opened no conversation (${reason}): try again in a moment.`);
  return new Problem("full", NO_SOCKET);
}

/** A request with the key, bounded in time. Throws a Problem when nothing answers. */
export async function get(place: Place, path: string, init: RequestInit = {}): Promise<globalThis.Response> {
  const headers = { ...init.headers, ...(place.key !== null && { Authorization: `Bearer ${place.key}` }) };
  try {
    return await fetch(new URL(path, place.server), { ...init, headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch {
    throw await unreachable(place.server);
  }
}

/** A browser does not tell a page why it reaches no server of another origin: look what can be seen. */
async function unreachable(server: URL): Promise<Problem> {
  if (location.protocol === "https:" && server.protocol === "http:" && !isLoopback(server)) {
    return new Problem("insecure", `Browsers let no https page speak with ${server.origin}: start that server with \`--https auto\` or behind a proxy.`);
  }
  const nobody = new Problem("unreachable", `No server answers at ${server.host}: start it, or check the network.`);
  if (server.origin === location.origin) return nobody;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  return fetch(new URL("health", server), { mode: "no-cors", signal }).then(() => foreign(server), () => nobody);
}

function foreign(server: URL): Problem {
  return new Problem("origin", `The server at ${server.host} takes no pages of ${location.origin}: add that to its server.allowed_origins.`);
}
