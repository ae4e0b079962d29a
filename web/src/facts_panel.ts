/** What the server remembers about the user of this browser: shown, exported, deleted; and whether it remembers at all. */

import { save } from "./clipboard";
import { button, byTouch, element, icon, made } from "./dom";
import type { AnyEvent } from "./event_summary";
import type { Loaded, VoiceClient } from "./library";
import { choices, choose } from "./memory";
import { request } from "./request";

const TOOLS = "parley.memory"; // the label of the tools that change facts
const ASKED_MS = 4_000;
const EMPTY = "Nothing yet. Say, for example: remember that my name is Ann.";
const OFF = "Nothing is stored about you, and no answer uses facts of earlier conversations.";

interface Fact {
  readonly name: string;
  readonly value: string;
}

const section = element("memory");
const remembers = element<HTMLInputElement>("remembers");
const list = element("facts");
const note = element("facts-note");
const keys = element("facts-keys");
const deleteAll = element<HTMLButtonElement>("delete-facts");

export class FactsPanel {
  private facts: readonly Fact[] = [];
  private asking = 0; // the timer of the question whether to delete all

  constructor(private readonly voice: VoiceClient) {
    remembers.addEventListener("change", () => this.use(remembers.checked));
    element("export-facts").addEventListener("click", () => {
      save(new Blob([JSON.stringify(this.facts, null, 2)], { type: "application/json" }), "memory.json");
    });
    deleteAll.addEventListener("click", () => this.deleteAll());
  }

  learn({ memory_available = false }: Loaded): void {
    const isNew = memory_available && section.hidden;
    section.hidden = !memory_available;
    if (!isNew) return;
    remembers.checked = choices().remembers;
    if (remembers.checked) this.use(true);
    else void this.show();
  }

  note(event: AnyEvent): void {
    const { type, item } = event as { type: string; item?: { server_label?: string } };
    if (type === "conversation.item.done" && item?.server_label === TOOLS) void this.show();
  }

  /** Reads the facts again. */
  async show(): Promise<void> {
    if (section.hidden) return;
    try {
      this.facts = choices().user === null ? [] : await this.read();
      note.textContent = this.facts.length > 0 ? "" : choices().remembers ? EMPTY : OFF;
    } catch (error) {
      note.textContent = `The facts could not be read. ${told(error)}`;
    }
    list.replaceChildren(...this.facts.map((fact) => this.row(fact)));
    keys.hidden = this.facts.length === 0;
    this.ask(false);
  }

  private async read(): Promise<Fact[]> {
    const response = await request(this.voice, this.address());
    return ((await response.json()) as { facts: Fact[] }).facts;
  }

  private row({ name, value }: Fact): HTMLElement {
    const row = made("li");
    const words = made("p");
    words.append(made("b", name), made("span", value));
    const forget = button("", () => void this.delete(name), "quiet icon-only");
    forget.setAttribute("aria-label", `Delete ${name}`);
    forget.append(icon("close"));
    row.append(words, forget);
    return row;
  }

  private async delete(name: string | null): Promise<void> {
    try {
      await request(this.voice, this.address(name), { method: "DELETE" });
    } catch (error) {
      note.textContent = `Nothing was deleted. ${told(error)}`;
      return;
    }
    await this.show();
  }

  /** Asks once more before it deletes. */
  private deleteAll(): void {
    if (this.asking !== 0) return void this.delete(null);
    this.ask(true);
    this.asking = window.setTimeout(() => this.ask(false), ASKED_MS);
  }

  private ask(sure: boolean): void {
    clearTimeout(this.asking);
    this.asking = 0;
    deleteAll.textContent = sure ? `${byTouch() ? "Tap" : "Press"} again to delete ${this.facts.length}` : "Delete all";
  }

  /** The user's name is known to this browser alone. Switched off, the facts stay at the server until they are deleted. */
  private use(wanted: boolean): void {
    const user = choices().user ?? randomName();
    choose({ remembers: wanted, user });
    this.voice.configure({ parley: { memory: wanted ? { user } : null } });
    void this.show();
  }

  private address(name: string | null = null): string {
    const fact = name === null ? "" : `/${encodeURIComponent(name)}`;
    return `v1/memory${fact}?user=${choices().user}`;
  }
}

function told(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function randomName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `browser-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
