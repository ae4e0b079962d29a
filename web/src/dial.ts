/** Opens the line that is wanted; when a call does not come about, a socket, and says why. */

import type { Line, LineEvents, LineKind, Place } from "./line";
import type { Player } from "./player";
import { Problem, type Code } from "./problem";
import { openWebRtc } from "./webrtc";
import { openWebSocket } from "./websocket";

export type Wanted = LineKind | "auto";

/** A refusal that a socket would meet too. */
const COMMON: ReadonlySet<Code> = new Set(["unreachable", "starting", "key", "origin", "full"]);

export interface Dialled {
  readonly line: Line;
  /** Why it is no call although one was wanted. */
  readonly fellBack: Problem | null;
}

/** Throws the Problem that is in the way. */
export async function dial(wanted: Wanted, place: Place, player: Player, events: LineEvents): Promise<Dialled> {
  let fellBack: Problem | null = null;
  if (wanted !== "websocket") {
    try {
      return { line: await openWebRtc(place, player.element, events), fellBack };
    } catch (error) {
      fellBack = error instanceof Problem ? error : new Problem("refused", `The call failed (${String(error)}).`);
      if (COMMON.has(fellBack.code)) throw fellBack;
    }
  }
  return { line: await openWebSocket(place, player, events), fellBack };
}
