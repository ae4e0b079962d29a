/** The model's calls of tools, as cards: in the script, and again in the inspector. */

import { element, icon, made } from "./dom";
import { durationOf } from "./duration";
import type { ToolCall } from "./library";

const MAX_CHARS = 160;
const MAX_CALLS = 50;

export class ToolCards {
  private readonly cards = new Map<string, HTMLElement[]>();
  private count = 0;
  private running: readonly HTMLElement[] | null = null; // the cards of the newest call that has no result yet
  private line: { readonly item: string; readonly cards: readonly HTMLElement[] } | null = null; // spoken last

  /** `insert` puts a card into the script. */
  constructor(private readonly insert: (card: HTMLElement) => void) {}

  show(call: ToolCall): void {
    const cards = this.cards.get(call.callId) ?? this.begin(call);
    for (const one of cards) update(one, call);
    if (call.status === "running") this.running = cards;
    else if (this.running === cards) this.running = null;
  }

  /** Shows what the voice says while a tool runs, in the card of that tool. Returns false if no card is for it. */
  say(item: string, text: string, final: boolean): boolean {
    const fresh = this.line?.item !== item;
    if (fresh) this.line = this.running && { item, cards: this.running };
    for (const card of this.line?.cards ?? []) {
      const line = card.querySelector(".said")!;
      line.textContent = final || fresh ? text : line.textContent + text;
    }
    return this.line !== null;
  }

  private begin(call: ToolCall): HTMLElement[] {
    const cards = [card(call), card(call)];
    const row = made("li");
    row.append(cards[1]!);
    element("no-calls").hidden = true;
    element("calls").prepend(row);
    this.insert(cards[0]!);
    this.cards.set(call.callId, cards);
    this.count++;
    element("call-count").textContent = String(this.count);
    if (this.cards.size > MAX_CALLS) this.forgetOldest();
    return cards;
  }

  private forgetOldest(): void {
    element("calls").lastElementChild!.remove();
    this.cards.delete(this.cards.keys().next().value!);
  }
}

function card({ name, arguments: given }: ToolCall): HTMLElement {
  const card = made("div", "", "tool");
  card.append(icon("tool"), made("b", name), made("span", fieldsOf(given), "given"), made("span", "", "took"), made("span", "", "said"), made("span", "", "result"));
  return card;
}

function update(card: HTMLElement, { status, output, ms }: ToolCall): void {
  card.dataset["status"] = status;
  card.querySelector(".result")!.textContent = status === "running" ? "" : `→ ${fieldsOf(output)}`;
  card.querySelector(".took")!.textContent = status === "running" ? "…" : `${status === "done" ? "✓" : "✗"} ${durationOf(ms)}`;
}

/** `{"minutes": 10}` as `minutes: 10`. */
function fieldsOf(json: string): string {
  try {
    const value: unknown = JSON.parse(json || "{}");
    if (typeof value !== "object" || value === null) return short(String(value));
    const values = Object.entries(value);
    return short(values.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", "));
  } catch {
    return short(json);
  }
}

function short(text: string): string {
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text;
}
