/** The menu of the conversation as a whole: copy, save, clear, begin anew. */

import type { Answers } from "./answers";
import type { Captions } from "./captions";
import { copyFrom, save } from "./clipboard";
import { element } from "./dom";
import { heardOf, markdownOf, wavOf } from "./transcript";

export interface MenuEvents {
  clear(): void;
  begin(): void;
}

export class Menu {
  private readonly menu = element("menu");

  constructor(
    private readonly captions: Captions,
    private readonly answers: Answers,
    events: MenuEvents,
  ) {
    this.on("copy-answer", (button) => void this.copy(button, heardOf(this.lastAnswer()!)));
    this.on("copy-all", (button) => void this.copy(button, markdownOf(captions.said())));
    this.on("save-all", () => this.save(new Blob([markdownOf(captions.said())], { type: "text/markdown" }), "conversation.md"));
    this.on("save-sound", () => this.save(wavOf(answers.lastSound), "answer.wav"));
    this.on("clear", () => this.leave(events.clear));
    this.on("new", () => this.leave(events.begin));
    this.menu.addEventListener("beforetoggle", () => this.offer());
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
    element("save-sound").hidden = this.answers.lastSound.length === 0; // a call brings none in events
  }

  private lastAnswer() {
    return this.captions.said().findLast(({ who }) => who === "answer");
  }

  private leave(act: () => void): void {
    this.menu.hidePopover();
    act();
  }

  private async copy(button: HTMLButtonElement, text: string): Promise<void> {
    await copyFrom(button, text);
    this.menu.hidePopover();
  }

  private save(file: Blob, name: string): void {
    save(file, name);
    this.menu.hidePopover();
  }
}
