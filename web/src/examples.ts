/** Examples of what one may ask this model, in its own words: shown while nothing else goes on. */

import { element, made } from "./dom";
import type { VoiceState } from "./library";

const AT_REST: ReadonlySet<VoiceState> = new Set(["idle", "ready", "muted", "listening"]);

export class Examples {
  private readonly box = element("examples");
  private known: readonly string[] = [];

  constructor(private readonly ask: (question: string) => void) {}

  /** The model's own; none: there is nothing to show. */
  learn(examples: readonly string[] = []): void {
    if (examples.join("\n") === this.known.join("\n")) return;
    this.known = examples;
    this.box.querySelector(".examples")!.replaceChildren(...examples.map((one) => this.button(one)));
  }

  show(state: VoiceState, answering: boolean): void {
    this.box.hidden = this.known.length === 0 || answering || !AT_REST.has(state);
  }

  private button(question: string): HTMLButtonElement {
    const button = made("button", question);
    button.type = "button";
    button.addEventListener("click", () => this.ask(question));
    return button;
  }
}
