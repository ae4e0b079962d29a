/** The connect doctor: tries every step on the way to a conversation, and names the one that fails and what to do. */

import { element, made } from "./dom";
import { STEPS, type Place } from "./library";

const dialog = element<HTMLDialogElement>("doctor");
const list = element("steps");

export class Doctor {
  private run: object | null = null; // the check that is shown

  constructor(private readonly place: () => Place) {
    for (const id of ["open-doctor", "diagnose"]) element(id).addEventListener("click", () => this.open());
    element("again").addEventListener("click", () => void this.check());
    dialog.addEventListener("close", () => (this.run = null));
  }

  private open(): void {
    dialog.showModal();
    void this.check();
  }

  private async check(): Promise<void> {
    const run = (this.run = {});
    list.replaceChildren();
    for (const { name, check } of STEPS) {
      const words = made("span", "Looking");
      const line = made("li");
      line.append(made("b", name), words);
      list.append(line);
      const found = await check(this.place()).then(
        (text) => ({ state: "good", text }),
        (error: unknown) => ({ state: "bad", text: error instanceof Error ? error.message : String(error) }),
      );
      if (run !== this.run) return;
      line.dataset["found"] = found.state;
      words.textContent = found.text;
    }
  }
}
