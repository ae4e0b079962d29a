/** The menu of the conversation as a whole: copy, save, clear, begin anew. */

import type { Captions } from "./captions";
import { element } from "./dom";
import type { ClientEvent, ServerEvent } from "./library";
import { heardOf, markdownOf, wavOf } from "./transcript";

const TOLD_MS = 900;

export interface MenuEvents {
  clear(): void;
  begin(): void;
}

export class Menu {
  private readonly menu = element("menu");
  private sound: { item: string; pieces: string[] } = { item: "", pieces: [] }; // of the last answer; a call brings none

  constructor(
    private readonly captions: Captions,
    events: MenuEvents,
  ) {
    this.on("copy-answer", (button) => void this.copy(button, heardOf(this.lastAnswer()!)));
    this.on("copy-all", (button) => void this.copy(button, markdownOf(captions.kept())));
    this.on("save-all", () => this.save(new Blob([markdownOf(captions.kept())], { type: "text/markdown" }), "conversation.md"));
    this.on("save-sound", () => this.save(wavOf(this.sound.pieces), "answer.wav"));
    this.on("clear", () => this.leave(events.clear));
    this.on("new", () => this.leave(events.begin));
    this.menu.addEventListener("beforetoggle", () => this.offer());
  }

  /** Keeps the sound of the last answer, where it comes in events: of one that has none there is none to save. */
  note(event: ServerEvent | ClientEvent): void {
    if (event.type === "response.created") this.sound = { item: "", pieces: [] };
    if (event.type !== "response.output_audio.delta") return;
    const { item_id, delta } = event as { item_id: string; delta: string };
    if (this.sound.item !== item_id) this.sound = { item: item_id, pieces: [] };
    this.sound.pieces.push(delta);
  }

  private on(id: string, act: (button: HTMLButtonElement) => void): void {
    const button = element<HTMLButtonElement>(id);
    button.addEventListener("click", () => act(button));
  }

  /** Only what there is can be taken. */
  private offer(): void {
    const enable = (id: string, can: boolean) => (element<HTMLButtonElement>(id).disabled = !can);
    for (const id of ["copy-all", "save-all", "clear"]) enable(id, !this.captions.empty);
    enable("copy-answer", this.lastAnswer() !== undefined);
    element("save-sound").hidden = this.sound.pieces.length === 0;
  }

  private lastAnswer() {
    return this.captions.kept().findLast(({ who }) => who === "answer");
  }

  private leave(act: () => void): void {
    this.menu.hidePopover();
    this.sound = { item: "", pieces: [] };
    act();
  }

  private async copy(button: HTMLButtonElement, text: string): Promise<void> {
    const words = button.textContent;
    button.textContent = (await copied(text)) ? "Copied" : "The browser does not allow it";
    setTimeout(() => {
      button.textContent = words;
      this.menu.hidePopover();
    }, TOLD_MS);
  }

  private save(file: Blob, name: string): void {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 0);
    this.menu.hidePopover();
  }
}

/** Whether the clipboard took it: browsers have none on an insecure address, but an older way. */
async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

function copiedBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
