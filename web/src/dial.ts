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

export interface Dialled {
  readonly line: Line;
  /** Why it is no call although one was wanted. */
  readonly fellBack: Problem | null;
}

/** With a ticket, first the way back to its session. Throws the Problem that is in the way. */
export async function dial(
  wanted: Wanted,
  ticket: Ticket | null,
  places: Places,
  player: Player,
  events: LineEvents,
): Promise<Dialled> {
  const back = ticket === null ? null : await goBack(ticket, places.last(), player, events);
  if (back !== null) return { line: back, fellBack: null };
  const place = await places.next();
  const kind = wanted === "auto" ? shortest(place) : wanted;
  if (kind === "websocket") return { line: await openWebSocket(place, player, events), fellBack: null };
  try {
    return { line: await openWebRtc(place, player.element, events), fellBack: null };
  } catch (error) {
    const why = error instanceof Problem ? error : new Problem("refused", `The call failed (${String(error)}).`);
    if (COMMON.has(why.code)) throw why;
    return { line: await openWebSocket(place, player, events), fellBack: why };
  }
}

/** The line back to a session, in the midst of it; null when the session is over, or there is no way now. */
async function goBack(ticket: Ticket, place: Place, player: Player, events: LineEvents): Promise<Line | null> {
  try {
    if (ticket.kind === "webrtc") return await openWebRtc(place, player.element, events, ticket);
    return await openWebSocket(place, player, events, ticket);
  } catch {
    return null; // what is in the way is told when a new session finds the same
  }
}

function shortest(place: Place): LineKind {
  return isLoopback(place.server) ? "websocket" : "webrtc";
}
