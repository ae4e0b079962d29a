/** Keys that act wherever nothing is typed. */

import { element } from "./dom";

const KEYS: Record<string, string> = { m: "talk", c: "camera", i: "open-inspector" };

export function startShortcuts(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || isTyping(event.target)) return;
    if (event.key === "/") {
      event.preventDefault();
      element("question").focus();
    }
    const id = KEYS[event.key.toLowerCase()];
    const button = id === undefined ? null : element<HTMLButtonElement>(id);
    if (button?.checkVisibility()) button.click();
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input:not([type=radio], [type=checkbox]), textarea, select, dialog, [popover]") !== null;
}
