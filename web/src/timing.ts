/** The first-audio figure of the last answer, and where its milliseconds went. */

import type { FirstSound } from "./call";

/** The server's terms in words; a term that is not here keeps its own name. */
const TERMS: Record<string, string> = {
  queue: "Waiting for a free slot",
  ears: "Hearing",
  thinker_prefill: "Reading the prompt",
  thinker_tokens: "First words",
  talker: "Speech codes",
  code2wav: "Codes to sound",
  packet: "Packing",
};
const AFTER = { sent: "after you sent", spoken: "after your turn ended" };
const REST = "Network, browser, loudspeaker";

export class Timing {
  constructor(
    private readonly panel: HTMLDetailsElement,
    private readonly figure: HTMLElement,
    private readonly bars: HTMLElement,
  ) {}

  show(first: FirstSound): void {
    this.panel.hidden = false;
    this.figure.textContent = `First sound ${Math.round(first.heard_ms)} ms ${AFTER[first.after]}`;
    this.bars.replaceChildren(...rows(first).map(([name, ms]) => bar(name, ms, first.heard_ms)));
  }
}

/** The server's terms, and what is left of the time to the ear; they add up to the figure unless the clocks disagree. */
function rows({ heard_ms, ledger }: FirstSound): [string, number][] {
  if (ledger === null) return [["In all (the parts come when the answer ends)", heard_ms]];
  const terms = Object.entries(ledger.terms_ms).map(([name, ms]): [string, number] => [TERMS[name] ?? name, ms]);
  const server_ms = terms.reduce((sum, [, ms]) => sum + ms, 0);
  return [...terms, [REST, Math.max(0, heard_ms - server_ms)]];
}

function bar(name: string, ms: number, whole_ms: number): HTMLElement {
  const row = document.createElement("tr");
  const label = document.createElement("th");
  label.scope = "row";
  label.textContent = name;
  const value = document.createElement("td");
  value.textContent = `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
  const share = document.createElement("td");
  share.className = "share";
  share.style.setProperty("--share", String(Math.min(1, ms / Math.max(1, whole_ms))));
  row.append(label, value, share);
  return row;
}
