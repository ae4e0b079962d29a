/** What the user typed and the server does not have yet, at the end of the script. */

import { element, made } from "./dom";

const list = element("pending");

export class Pending {
  constructor(private readonly changed: () => void) {}

  get empty(): boolean {
    return list.childElementCount === 0;
  }

  show(texts: readonly string[]): void {
    list.replaceChildren(...texts.map(bubble));
    this.changed();
  }
}

function bubble(text: string): HTMLElement {
  const entry = made("div", "", "user pending");
  const words = made("p", text);
  words.dir = "auto";
  entry.append(made("b", "You", "unseen"), words);
  return entry;
}
