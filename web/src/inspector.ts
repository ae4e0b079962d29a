/** The panel at the side: opened by the figure in the head, by its own button, or by the key I. */

import { element } from "./dom";
import { Tabs } from "./tabs";

const panel = element("inspector");
const openers = [element("open-inspector"), element("latency")];

export class Inspector {
  private readonly tabs: Tabs;

  /** `shown` gets the panel that comes into sight. */
  constructor(private readonly shown: (panel: string) => void) {
    this.tabs = new Tabs(panel, shown);
    openers[0]!.addEventListener("click", () => this.toggle(panel.hidden === true));
    openers[1]!.addEventListener("click", () => {
      this.tabs.open("panel-timing");
      this.toggle(true);
    });
    element("close-inspector").addEventListener("click", () => {
      this.toggle(false);
      openers[0]!.focus();
    });
  }

  private toggle(open: boolean): void {
    panel.hidden = !open;
    for (const opener of openers) opener.setAttribute("aria-expanded", String(open));
    if (open) this.shown(this.tabs.current);
  }
}
