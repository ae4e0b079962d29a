/** The first minute: what this model can do, examples of its own, and how to get more. */

import { copyFrom } from "./clipboard";
import { button, element } from "./dom";
import type { Loaded } from "./library";

const MAX_EXAMPLES = 3;
const SHORT = 24; // characters: three stand on one line

const examples = element("examples");

export type Look = "hero" | "open" | "script";

export class Hero {
  private known: readonly string[] = [];

  constructor(private readonly ask: (question: string) => void) {
    const copy = element("copy-upgrade");
    copy.addEventListener("click", () => void copyFrom(copy, element("upgrade").textContent ?? ""));
  }

  learn(loaded: Loaded): void {
    const { notes = [], examples: own = [], understands_speech: hears = true } = loaded;
    const closed = own.length > 0; // a model with examples understands those, and little else
    element("invitation").textContent = !hears ? "Type anything" : closed ? "Talk to your own machine" : "Ask it anything";
    element("promise").textContent = hears
      ? "Speak, and the answer comes aloud and as text. Interrupt it at any time."
      : "The answer comes aloud and as text. Interrupt it at any time.";
    element("start").hidden = !hears;
    element("notes").textContent = notes.join(" ");
    element("notes").hidden = notes.length === 0;
    element("vocabulary").hidden = !closed;
    element("about").hidden = notes.length === 0 && !closed;
    const short = own.filter(({ length }) => length <= SHORT);
    this.offer((short.length > 0 ? short : own).slice(0, MAX_EXAMPLES));
  }

  /** Examples stand where nothing has been said: they would push an answer away. */
  show(look: Look): void {
    examples.hidden = this.known.length === 0 || look === "script";
  }

  private offer(known: readonly string[]): void {
    if (known.join("\n") === this.known.join("\n")) return;
    this.known = known;
    examples.replaceChildren(...known.map((one) => button(one, () => this.ask(one), "secondary")));
  }
}
