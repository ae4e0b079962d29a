/** The conversation as text: one entry an utterance, in the order in which they began. Knows no protocol. */

import { AnswerText } from "./answer_text";
import { draw, made } from "./dom";
import type { Who } from "./library";
import { sentenceCase } from "./sentence_case";

const NAMES: Record<Who, string> = { user: "You", answer: "Parley" };
const PICTURE = { width: 240, height: 180, quality: 0.7 };
const KEPT_PICTURES = 12; // over a reload: some 10 kB each
const MAX_ENTRIES = 600; // some hours of talk; older ones leave the page
const SLACK_PX = 48;
const SPOKEN = 1 / 3; // of the pane's height: the place of the spoken word in a long answer

/** The words of an entry; a line between two conversations has no speaker. */
export interface Said {
  readonly item: string;
  readonly who: Who | null;
  readonly name: string;
  readonly text: string;
  readonly unheard: string;
}

/** An entry as it is kept over a reload. */
export interface Kept extends Said {
  /** The pictures as data URIs. */
  readonly pictures: readonly string[];
}

export class Captions {
  /** Whether all recognized speech is English. */
  english = false;
  private readonly entries = new Map<string, HTMLElement>();
  private atEnd = true; // a reader who scrolled back is left there
  private top_px = 0;

  /** `pane` scrolls the list, and what stands behind it. `footer` makes the row below an answer. */
  constructor(
    private readonly list: HTMLElement,
    private readonly pane: HTMLElement,
    private readonly footer: (item: string) => HTMLElement | null = () => null,
  ) {
    pane.addEventListener("scroll", () => this.scrolled());
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

  /** The next words of an answer that is under way. */
  append(item: string, text: string): void {
    this.answer(item).append(text);
    this.follow();
  }

  /** The words of an answer that are known and not heard yet: all of them. */
  coming(item: string, text: string): void {
    this.answer(item).setComing(text);
    this.follow();
  }

  /** No more words of this answer are heard. */
  finish(item: string): void {
    this.known(item)?.finish();
  }

  /** The user's words so far, as they are understood now. */
  guess(item: string, text: string): void {
    const entry = this.entry(item, "user");
    if (!entry.hasAttribute("aria-busy")) return; // it is known better
    entry.classList.add("partial");
    words(entry).textContent = sentenceCase(text, this.english);
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

  /** Something that is no utterance, such as a tool's card, where the conversation is now. */
  insert(card: HTMLElement): void {
    this.list.append(card);
    this.follow();
  }

  /** Words that were said are forgotten here. */
  clear(): void {
    this.entries.clear();
    this.list.replaceChildren();
    this.atEnd = true;
  }

  /** All the words of an utterance. Without any, the words that it was taken for stay, or a note that nothing was understood. */
  complete(item: string, who: Who, text: string): void {
    const spoken = this.entries.has(item); // what was typed has no entry yet
    const entry = this.entry(item, who);
    if (who === "answer") texts.get(entry)!.complete(text);
    else words(entry).textContent = (spoken ? sentenceCase(text, this.english) : text) || words(entry).textContent || "not understood";
    entry.classList.remove("partial");
    entry.classList.toggle("empty", text === "");
    settle(entry);
    this.follow();
  }

  interrupted(item: string): void {
    this.known(item)?.interrupt();
    this.entries.get(item)?.classList.add("interrupted");
    this.follow();
  }

  /** Only the beginning of an interrupted answer, `heard`, reached the user; the rest is struck. */
  cut(item: string, heard: string): void {
    this.interrupted(item);
    this.known(item)?.cut(heard);
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

  said(): Said[] {
    return this.lines().map(saidIn);
  }

  kept(): Kept[] {
    return this.lines().map((entry, at, all) => ({
      ...saidIn(entry),
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

  /** Shows the newest words, and of a long answer the spoken word, unless the reader has scrolled back. */
  follow(): void {
    if (!this.atEnd) return;
    const { pane } = this;
    pane.scrollTop = pane.scrollHeight;
    const spoken = this.list.querySelector(".now, .next")?.getClientRects()[0];
    if (spoken === undefined) return;
    const above_px = pane.getBoundingClientRect().top + pane.clientHeight * SPOKEN - spoken.top;
    if (above_px > 0) pane.scrollTop -= above_px;
    this.top_px = pane.scrollTop; // the reader did not scroll
  }

  private lines(): HTMLElement[] {
    return [...this.list.querySelectorAll<HTMLElement>(".user, .answer, .divider")];
  }

  /** Words that were added since move the end away from the reader, who has then not scrolled back. */
  private scrolled(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.pane;
    if (scrollHeight - scrollTop - clientHeight < SLACK_PX) this.atEnd = true;
    else if (scrollTop < this.top_px) this.atEnd = false;
    this.top_px = scrollTop;
  }

  private answer(item: string): AnswerText {
    return texts.get(this.entry(item, "answer"))!;
  }

  private known(item: string): AnswerText | undefined {
    return texts.get(this.entries.get(item)!);
  }

  private entry(item: string, who: Who): HTMLElement {
    const known = this.entries.get(item);
    if (known !== undefined) return known;
    const entry = blank(who);
    entry.dataset["item"] = item;
    const footer = who === "answer" ? this.footer(item) : null;
    if (footer !== null) entry.append(footer);
    this.entries.set(item, entry);
    this.list.append(entry);
    this.forgetOldest();
    return entry;
  }

  private forgetOldest(): void {
    if (this.entries.size <= MAX_ENTRIES) return;
    const oldest = this.entries.values().next().value!;
    while (this.list.firstElementChild !== oldest) this.list.firstElementChild!.remove(); // cards and lines before it
    this.remove(oldest);
  }

  private remove(entry: HTMLElement): void {
    entry.remove();
    this.entries.delete(entry.dataset["item"]!);
  }
}

/** The words of each answer's entry. */
const texts = new WeakMap<HTMLElement, AnswerText>();

function blank(who: Who): HTMLElement {
  const entry = made("div", "", who);
  entry.setAttribute("aria-busy", "true");
  entry.append(made("b", NAMES[who], "unseen"));
  if (who === "answer") {
    const text = new AnswerText();
    texts.set(entry, text);
    entry.append(text.element);
  } else {
    const text = made("p");
    text.dir = "auto";
    entry.append(text);
  }
  return entry;
}

function saidIn(entry: HTMLElement): Said {
  const answer = texts.get(entry);
  return {
    item: entry.dataset["item"] ?? "",
    who: entry.classList.contains("divider") ? null : answer === undefined ? "user" : "answer",
    name: entry.querySelector("b")?.textContent ?? "",
    text: answer?.source ?? (entry.querySelector("p") ?? entry).textContent ?? "",
    unheard: answer?.unheard ?? "",
  };
}

function small(canvas: HTMLCanvasElement): string {
  return canvas.toDataURL("image/jpeg", PICTURE.quality);
}

function words(entry: HTMLElement): HTMLElement {
  return entry.querySelector("p")!;
}

function settle(entry: HTMLElement): void {
  entry.removeAttribute("aria-busy");
}
