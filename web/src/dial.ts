/** Opens the line that is wanted; when a call does not come about, a socket, and says why. */

import { isLoopback, type Line, type LineEvents, type LineKind, type Place } from "./line";
import type { Player } from "./player";
import type { Ticket } from "./resume";
import { Problem, type Code } from "./problem";
import { openWebRtc } from "./webrtc";
import { openWebSocket } from "./websocket";

/**
 * "auto": a call, except to a server on this very machine: no packet is lost on the way there, and a socket, which
 * needs neither a codec nor a jitter buffer, brings the first sound sooner.
 */
export type Wanted = LineKind | "auto";

/** A refusal that a socket would meet too. */
const COMMON: ReadonlySet<Code> = new Set(["unreachable", "starting", "key", "origin", "insecure"]);

/** The server's address, and a key to it. */
export interface Places {
  /** With the key of the last line: it alone may reach that one's session. */
  last(): Place;
  /** With a key for a new session. Throws a Problem. */
  next(): Promise<Place>;
}

/** The line that is wanted, with a ticket the way back to a session first, and the end of that wish. */
export interface Wish {
  readonly wanted: Wanted;
  readonly ticket: Ticket | null;
  readonly signal: AbortSignal;
}

export interface Dialled {
  readonly line: Line;
  /** Why it is no call although one was wanted. */
  readonly fellBack: Problem | null;
}

/** Throws the Problem that is in the way, and what the wish's signal says: nothing is opened for a wish that is over. */
export async function dial(wish: Wish, places: Places, player: Player, events: LineEvents): Promise<Dialled> {
  const { wanted, signal } = wish;
  const back = await goBack(wish, places.last(), player, events);
  if (back !== null) return { line: back, fellBack: null };
  signal.throwIfAborted();
  const place = await places.next();
  const kind = wanted === "auto" ? shortest(place) : wanted;
  if (kind === "websocket") return { line: await openWebSocket(place, player, events, signal), fellBack: null };
  try {
    return { line: await openWebRtc(place, player.element, events, signal), fellBack: null };
  } catch (error) {
    const why = error instanceof Problem ? error : new Problem("refused", `The call failed (${String(error)}).`);
    if (COMMON.has(why.code)) throw why;
    return { line: await openWebSocket(place, player, events, signal), fellBack: why };
  }
}

/** The line back to a session, in the midst of it; null when the session is over, or there is no way now. */
async function goBack({ ticket, signal }: Wish, place: Place, player: Player, events: LineEvents): Promise<Line | null> {
  if (ticket === null) return null;
  try {
    if (ticket.kind === "webrtc") return await openWebRtc(place, player.element, events, signal, ticket);
    return await openWebSocket(place, player, events, signal, ticket);
  } catch {
    return null; // what is in the way is told when a new session finds the same
  }
}

function shortest(place: Place): LineKind {
  return isLoopback(place.server) ? "websocket" : "webrtc";
}
