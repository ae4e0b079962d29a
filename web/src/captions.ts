/** The conversation as text: one entry an utterance, in the order in which they began. Knows no protocol. */

import { made } from "./dom";
import type { Who } from "./library";

const NAMES: Record<Who, string> = { user: "You", answer: "Parley" };
const MAX_ENTRIES = 200; // an hour of talk; older ones leave the page
const SLACK_PX = 48;

/** An entry as it is kept over a reload; a line between two conversations has no speaker. */
export interface Kept {
  readonly item: string;
  readonly who: Who | null;
  readonly text: string;
  readonly unheard: string;
}

export class Captions {
  private readonly entries = new Map<string, HTMLElement>();
  private atEnd = true; // a reader who scrolled back is left there

  constructor(private readonly list: HTMLElement) {
    list.addEventListener("scroll", () => (this.atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < SLACK_PX));
    new ResizeObserver(() => this.follow()).observe(list);
  }

  get empty(): boolean {
    return this.list.childElementCount === 0;
  }

  /** An entry with no words yet: someone began to speak. */
  begin(item: string, who: Who): void {
    this.entry(item, who);
    this.follow();
  }

  /** The next words of an utterance that is under way. */
  append(item: string, who: Who, text: string): void {
    words(this.entry(item, who)).append(text);
    this.follow();
  }

  /** All the words of an utterance; without any it stays as something that was not understood. */
  complete(item: string, who: Who, text: string): void {
    const entry = this.entry(item, who);
    words(entry).textContent = text || "not understood";
    entry.classList.toggle("empty", text === "");
    settle(entry);
    this.follow();
  }

  interrupted(item: string): void {
    this.entries.get(item)?.classList.add("interrupted");
  }

  /** Of an interrupted answer only the beginning, `heard`, reached the user; the rest turns grey. */
  cut(item: string, heard: string): void {
    const entry = this.entries.get(item);
    const text = entry && words(entry).textContent;
    if (!entry || text == null) return;
    if (text.startsWith(heard)) grey(entry, heard, text.slice(heard.length));
    else words(entry).textContent = heard; // words that were said, and came too late to be shown
    entry.classList.add("interrupted");
  }

  /** No more words come for what is under way from this speaker. Screen readers now read it as a whole. */
  settle(who: Who): void {
    for (const entry of this.list.querySelectorAll<HTMLElement>(`.${who}[aria-busy]`)) settle(entry);
  }

  /** A line between two conversations. */
  divide(text: string): void {
    this.list.append(made("p", text, "divider"));
    this.follow();
  }

  kept(): Kept[] {
    return [...this.list.querySelectorAll<HTMLElement>(":scope > *")].map((entry) => ({
      item: entry.dataset["item"] ?? "",
      who: entry.classList.contains("divider") ? null : entry.classList.contains("user") ? "user" : "answer",
      text: (entry.querySelector("p") ?? entry).textContent ?? "",
      unheard: entry.querySelector("s")?.textContent ?? "",
    }));
  }

  restore(kept: readonly Kept[]): void {
    for (const { item, who, text, unheard } of kept) {
      if (who === null) this.divide(text);
      else this.complete(item, who, text);
      if (unheard) this.cut(item, text.slice(0, -unheard.length));
    }
  }

  private entry(item: string, who: Who): HTMLElement {
    const known = this.entries.get(item);
    if (known !== undefined) return known;
    const entry = blank(who);
    entry.dataset["item"] = item;
    this.entries.set(item, entry);
    this.list.append(entry);
    this.forgetOldest();
    return entry;
  }

  private forgetOldest(): void {
    if (this.entries.size <= MAX_ENTRIES) return;
    const [item, entry] = this.entries.entries().next().value!;
    entry.remove();
    this.entries.delete(item);
  }

  private follow(): void {
    if (this.atEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}

function blank(who: Who): HTMLElement {
  const entry = made("div", "", who);
  entry.setAttribute("aria-busy", "true");
  const text = made("p");
  text.dir = "auto";
  entry.append(made("b", NAMES[who]), text);
  return entry;
}

function grey(entry: HTMLElement, heard: string, rest: string): void {
  const unheard = made("s", rest);
  unheard.title = "Not heard";
  words(entry).replaceChildren(heard, unheard);
}

function words(entry: HTMLElement): HTMLElement {
  return entry.querySelector("p")!;
}

function settle(entry: HTMLElement): void {
  entry.removeAttribute("aria-busy");
}
