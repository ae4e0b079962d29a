/** The settings of the conversation and of the connection, and the check of every step on the way to the server. */

import { element, made } from "./dom";
import { fit } from "./fit";
import { choices, choose } from "./memory";
import { STEPS, type Eagerness, type VoiceClient, type Wanted } from "./library";
import { Tabs } from "./tabs";

const dialog = element<HTMLDialogElement>("settings");
const eagerness = element<HTMLSelectElement>("eagerness");
const transport = element<HTMLSelectElement>("transport");
const pageTools = element<HTMLInputElement>("page-tools");
const steps = element("steps");

export class Settings {
  private readonly tabs = new Tabs(dialog, () => fitPanel());
  private check: object | null = null; // the one that is shown

  constructor(
    private readonly voice: VoiceClient,
    private readonly useTools: (wanted: boolean) => void,
  ) {
    this.recall();
    element("open-settings").addEventListener("click", () => open());
    element("open-doctor").addEventListener("click", () => void this.diagnose());
    element("diagnose").addEventListener("click", () => this.openCheck());
    eagerness.addEventListener("change", () => this.setEagerness(eagerness.value as Eagerness));
    transport.addEventListener("change", () => this.setTransport(transport.value as Wanted));
    pageTools.addEventListener("change", () => this.setTools(pageTools.checked));
    dialog.addEventListener("close", () => (this.check = null));
    window.addEventListener("resize", fitPanel);
  }

  private recall(): void {
    const { transport: wanted, eagerness: soon, pageTools: tools } = choices();
    this.voice.transport = transport.value = wanted;
    this.voice.setEagerness((eagerness.value = soon) as Eagerness);
    pageTools.checked = tools;
  }

  private setEagerness(soon: Eagerness): void {
    choose({ eagerness: soon });
    this.voice.setEagerness(soon);
  }

  private setTransport(wanted: Wanted): void {
    choose({ transport: wanted });
    this.voice.transport = wanted;
    this.voice.reconnect();
  }

  private setTools(wanted: boolean): void {
    choose({ pageTools: wanted });
    this.useTools(wanted);
  }

  private openCheck(): void {
    this.tabs.open("panel-connection");
    open();
    void this.diagnose();
  }

  /** Tries every step on the way to a conversation, and names the one that fails and what to do. */
  private async diagnose(): Promise<void> {
    const check = (this.check = {});
    steps.replaceChildren();
    steps.closest<HTMLElement>("[role=tabpanel]")!.style.maxHeight = ""; // the lines make it higher
    for (const step of STEPS) {
      const words = made("span", "Looking");
      const line = made("li");
      line.append(made("b", step.name), words);
      steps.append(line);
      line.scrollIntoView({ block: "nearest" });
      const found = await step.check(this.voice.place).then(
        (text) => ({ state: "good", text }),
        (error: unknown) => ({ state: "bad", text: error instanceof Error ? error.message : String(error) }),
      );
      if (check !== this.check) return;
      line.dataset["found"] = found.state;
      words.textContent = found.text;
      line.scrollIntoView({ block: "nearest" });
    }
  }
}

function open(): void {
  dialog.showModal();
  fitPanel();
}

/** The panel that is shown takes the height that the dialog leaves it. */
function fitPanel(): void {
  const panel = dialog.querySelector<HTMLElement>("[role=tabpanel]:not([hidden])");
  if (!dialog.open || panel === null) return;
  panel.style.maxHeight = "";
  fit(panel, panel.offsetHeight);
}
