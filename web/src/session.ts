/** The session's settings that a conversation begins with, and those that change in its course. */

/** The haste with which a pause ends the user's turn: `low` waits longest, `auto` is the server's choice. */
export type Eagerness = "low" | "medium" | "high" | "auto";

/** The user's wishes about the answers; null: the server's choice. */
export interface Wishes {
  readonly voice: string | null;
  readonly eagerness: Eagerness;
  readonly instructions: string | null;
}

/** `handsFree`: the server finds the turns, else the client says them; `more` is merged over it, in the protocol's words. */
export function sessionOf(handsFree: boolean, wishes: Wishes, more: object = {}): object {
  return {
    parley: { resume: true, alignment: true, partials: true },
    output_modalities: ["audio"],
    ...(wishes.instructions !== null && { instructions: wishes.instructions }),
    audio: {
      input: { transcription: { model: "default" }, turn_detection: turnsOf(handsFree, wishes.eagerness) },
      ...(wishes.voice && { output: { voice: wishes.voice } }),
    },
    ...more,
  };
}

/** The side that ends a turn. */
export function turnsOf(handsFree: boolean, eagerness: Eagerness): object | null {
  return handsFree ? { type: "semantic_vad", eagerness, create_response: true, interrupt_response: true } : null;
}
