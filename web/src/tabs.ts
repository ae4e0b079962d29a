/** Tabs by the ARIA pattern: one tab in the order of the keyboard, arrows between them, one panel shown. */

export class Tabs {
  private readonly tabs: HTMLElement[];

  constructor(
    root: HTMLElement,
    private readonly chosen: (panel: string) => void = () => undefined,
  ) {
    this.tabs = [...root.querySelectorAll<HTMLElement>("[role=tab]")];
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.select(tab));
      tab.addEventListener("keydown", (event) => this.move(tab, event));
    }
    this.select(this.tabs[0]!);
  }

  /** The id of the panel that is shown. */
  get current(): string {
    return panelOf(this.tabs.find((tab) => tab.tabIndex === 0)!).id;
  }

  /** Shows the panel with this id. */
  open(panel: string): void {
    this.select(this.tabs.find((tab) => panelOf(tab).id === panel)!);
  }

  private select(tab: HTMLElement): void {
    for (const one of this.tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      panelOf(one).hidden = one !== tab;
    }
    this.chosen(panelOf(tab).id);
  }

  private move(tab: HTMLElement, { key }: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (step === undefined) return;
    const next = this.tabs.at((this.tabs.indexOf(tab) + step) % this.tabs.length)!;
    this.select(next);
    next.focus();
  }
}

function panelOf(tab: HTMLElement): HTMLElement {
  return document.getElementById(tab.getAttribute("aria-controls")!)!;
}
