/** Asks for the server's key: kept in this tab, sent only to the server. */

import { element } from "./dom";
import { recalled, remember } from "./memory";
import type { VoiceClient } from "./library";

const dialog = element<HTMLDialogElement>("key-dialog");
const field = element<HTMLInputElement>("key");
const show = element<HTMLInputElement>("show-key");

export class KeyDialog {
  private talk = false; // the user wanted to speak, and not to type

  constructor(
    private readonly voice: VoiceClient,
    private readonly entered: (talk: boolean) => void,
  ) {
    this.use((recalled("key") as string | null) ?? "");
    show.addEventListener("change", () => (field.type = show.checked ? "text" : "password"));
    dialog.addEventListener("close", () => this.closed());
    element("no-key").addEventListener("click", () => dialog.close());
    element("change-key").addEventListener("click", () => {
      element<HTMLDialogElement>("settings").close();
      this.ask("It is kept in this tab, and sent only to the server.");
    });
  }

  ask(reason: string, talk = false): void {
    this.talk = talk;
    element("key-reason").textContent = reason;
    show.checked = false;
    field.type = "password";
    field.value = "";
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
    field.focus();
  }

  private closed(): void {
    if (dialog.returnValue !== "use") return;
    remember("key", field.value.trim());
    this.use(field.value.trim());
    this.entered(this.talk);
  }

  private use(key: string): void {
    this.voice.key = key || null;
    element("key-state").textContent = key ? "Kept in this tab, and sent only to the server." : "Needed only if the server asks for one.";
    element("change-key").textContent = key ? "Change" : "Enter a key";
  }
}
