/** The page's memory: the user's choices in this browser, the conversation and the key in this tab. */

import type { Eagerness } from "./library";

export type Theme = "auto" | "light" | "dark";

export interface Choices {
  readonly handsFree: boolean;
  readonly transport: "auto" | "webrtc" | "websocket";
  readonly microphone: string | null;
  readonly speaker: string;
  readonly model: string | null;
  readonly voice: string | null;
  readonly eagerness: Eagerness;
  readonly instructions: string | null;
  readonly theme: Theme;
  /** Whether the model may use the page's own tools. */
  readonly pageTools: boolean;
  /** Whether the server may store facts for later conversations. */
  readonly remembers: boolean;
  /** The name of this browser's user in the server's memory; null: it has none yet. */
  readonly user: string | null;
}

const DEFAULTS: Choices = {
  handsFree: true,
  transport: "auto",
  microphone: null,
  speaker: "",
  model: null,
  voice: null,
  eagerness: "auto",
  instructions: null,
  theme: "auto",
  pageTools: true,
  remembers: false,
  user: null,
};

export function choices(): Choices {
  return { ...DEFAULTS, ...(recall(() => localStorage, "choices") as Partial<Choices> | null) };
}

export function choose(change: Partial<Choices>): void {
  keep(() => localStorage, "choices", { ...choices(), ...change });
}

export function recalled(name: string): unknown {
  return recall(() => sessionStorage, name);
}

/** Kept until the tab is closed; null: no more. */
export function remember(name: string, value: unknown): void {
  keep(() => sessionStorage, name, value);
}

/** A browser that forbids storage has none to recall. */
function recall(storage: () => Storage, name: string): unknown {
  try {
    return JSON.parse(storage().getItem(`parley.${name}`) ?? "null");
  } catch {
    return null;
  }
}

function keep(storage: () => Storage, name: string, value: unknown): void {
  try {
    storage().setItem(`parley.${name}`, JSON.stringify(value));
  } catch {
    // Forbidden, or full: the page works without a memory.
  }
}
