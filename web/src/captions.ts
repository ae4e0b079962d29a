/** The conversation as text: one entry an utterance, in the order in which they began. Knows no protocol. */

import { draw, made } from "./dom";
import type { Who } from "./library";

const NAMES: Record<Who, string> = { user: "You", answer: "Parley" };
const PICTURE = { width: 240, height: 180, quality: 0.7 };
const KEPT_PICTURES = 12; // over a reload: some 10 kB each
const MAX_ENTRIES = 200; // an hour of talk; older ones leave the page
const SLACK_PX = 48;

/** An entry as it is kept over a reload; a line between two conversations has no speaker. */
export interface Kept {
  readonly item: string;
  readonly who: Who | null;
  readonly name: string;
  readonly text: string;
  readonly unheard: string;
  /** The pictures as data URIs. */
  readonly pictures: readonly string[];
}

export class Captions {
  private readonly entries = new Map<string, HTMLElement>();
  private atEnd = true; // a reader who scrolled back is left there

  /** `pane` scrolls the list, and what stands behind it. */
  constructor(
    private readonly list: HTMLElement,
    private readonly pane: HTMLElement,
  ) {
    pane.addEventListener("scroll", () => (this.atEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < SLACK_PX));
    const resized = new ResizeObserver(() => this.follow());
    for (const one of [pane, ...pane.children]) resized.observe(one);
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
    const entry = this.entry(item, who);
    if (entry.classList.contains("partial")) words(entry).textContent = ""; // what it was taken for is over
    entry.classList.remove("partial");
    words(entry).append(text);
    this.follow();
  }

  /** The user's words so far, as they are understood now. */
  guess(item: string, text: string): void {
    const entry = this.entry(item, "user");
    if (!entry.hasAttribute("aria-busy")) return; // it is known better
    entry.classList.add("partial");
    words(entry).textContent = text;
    this.follow();
  }

  /** The picture that the model was shown with an utterance. */
  show(item: string, picture: string): void {
    const canvas = made("canvas");
    canvas.width = PICTURE.width;
    canvas.height = PICTURE.height;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "The picture that the model was shown");
    words(this.entry(item, "user")).before(canvas);
    void draw(picture, canvas).then(() => this.follow());
  }

  /** Words that were said are forgotten here. */
  clear(): void {
    this.entries.clear();
    this.list.replaceChildren();
    this.atEnd = true;
  }

  /** All the words of an utterance; without any it stays as something that was not understood. */
  complete(item: string, who: Who, text: string): void {
    const entry = this.entry(item, who);
    words(entry).textContent = text || "not understood";
    entry.classList.remove("partial");
    entry.classList.toggle("empty", text === "");
    settle(entry);
    this.follow();
  }

  interrupted(item: string): void {
    this.entries.get(item)?.classList.add("interrupted");
    this.follow();
  }

  /** Only the beginning of an interrupted answer, `heard`, reached the user; the rest turns grey. */
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

  /** No more comes of what the user began to say: the words that were understood stay, and an entry without any goes. */
  leave(): void {
    for (const entry of this.list.querySelectorAll<HTMLElement>(".user[aria-busy]")) {
      settle(entry);
      entry.classList.remove("partial");
      if (words(entry).textContent === "" && entry.querySelector("canvas") === null) this.remove(entry);
    }
  }

  /** A line between two conversations. */
  divide(text: string): void {
    this.list.append(made("p", text, "divider"));
    this.follow();
  }

  kept(): Kept[] {
    return [...this.list.querySelectorAll<HTMLElement>(":scope > *")].map((entry, at, all) => ({
      item: entry.dataset["item"] ?? "",
      who: entry.classList.contains("divider") ? null : entry.classList.contains("user") ? "user" : "answer",
      name: entry.querySelector("b")?.textContent ?? "",
      text: (entry.querySelector("p") ?? entry).textContent ?? "",
      unheard: entry.querySelector("s")?.textContent ?? "",
      pictures: at < all.length - KEPT_PICTURES ? [] : [...entry.querySelectorAll("canvas")].map(small),
    }));
  }

  restore(kept: readonly Kept[]): void {
    for (const { item, who, text, unheard, pictures } of kept) {
      if (who === null) this.divide(text);
      else this.complete(item, who, text);
      if (unheard) this.cut(item, text.slice(0, -unheard.length));
      for (const picture of pictures) this.show(item, picture);
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
    this.remove(this.entries.values().next().value!);
  }

  private remove(entry: HTMLElement): void {
    entry.remove();
    this.entries.delete(entry.dataset["item"]!);
  }

  private follow(): void {
    if (this.atEnd && !this.empty) this.pane.scrollTop = this.pane.scrollHeight;
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

function small(canvas: HTMLCanvasElement): string {
  return canvas.toDataURL("image/jpeg", PICTURE.quality);
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
