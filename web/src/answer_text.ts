/** The words of one answer: Markdown, with the word that is heard now, the words to come and those that nobody heard. */

import { made } from "./dom";
import { parse, type Part, type Run } from "./markdown";

/** How a range of the source looks. */
interface Style extends Run {
  readonly tag: "span" | "s";
  readonly name: string;
}

export class AnswerText {
  readonly element = made("div", "", "words");
  private heard = ""; // or shown, where nobody knows what is heard
  private coming = "";
  private newest = 0; // where the newest heard word begins
  private struck: number | null = null; // where the words that nobody heard begin

  constructor() {
    this.element.dir = "auto";
  }

  /** The source, without the words to come of an interrupted answer. */
  get source(): string {
    return this.heard + this.coming;
  }

  get unheard(): string {
    return this.struck === null ? "" : this.heard.slice(this.struck);
  }

  append(text: string): void {
    if (this.coming !== "") this.newest = this.heard.length + text.search(/\S|$/);
    this.heard += text;
    this.coming = this.coming.slice(text.length); // told anew right after
    this.show();
  }

  setComing(text: string): void {
    if (text === this.coming) return;
    this.coming = text;
    this.show();
  }

  /** All words, none of which comes. */
  complete(text: string): void {
    this.heard = text;
    this.coming = "";
    this.newest = text.length;
    this.show();
  }

  /** No more words are heard. */
  finish(): void {
    this.complete(this.source);
  }

  /** The words to come will not be heard. */
  interrupt(): void {
    this.complete(this.heard);
  }

  /** Only `heard` reached the user: strikes the words behind it, and no punctuation before them. */
  cut(heard: string): void {
    if (!this.heard.startsWith(heard)) return this.complete(heard); // words that came too late to be shown
    const first = this.heard.slice(heard.length).search(/[\p{L}\p{N}]/u);
    this.struck = first < 0 ? null : heard.length + first;
    this.show();
  }

  /** Blocks that did not change stay, and with them what the user selected. */
  private show(): void {
    const fresh = this.elements(parse(this.source)) as Element[];
    const before = [...this.element.children];
    fresh.forEach((block, at) => {
      const old = before[at];
      if (old === undefined) this.element.append(block);
      else if (!old.isEqualNode(block)) old.replaceWith(block);
    });
    for (const old of before.slice(fresh.length)) old.remove();
  }

  private elements(parts: readonly Part[]): Node[] {
    return parts.flatMap((part) => ("tag" in part ? [this.tagged(part)] : this.styled(part)));
  }

  private tagged({ tag, parts, kind = "", href, start }: Exclude<Part, Run>): HTMLElement {
    const one = made(tag, "", kind);
    if (href !== undefined) Object.assign(one, { href, target: "_blank", rel: "noopener noreferrer" });
    if (start !== undefined && start !== 1) one.setAttribute("start", String(start));
    one.append(...this.elements(parts));
    return one;
  }

  private get styles(): readonly Style[] {
    const { length } = this.heard;
    if (this.struck !== null) return [{ from: this.struck, to: length, tag: "s", name: "" }];
    if (this.coming === "") return [];
    const next: Style = { from: length, to: Infinity, tag: "span", name: "next" };
    return [{ from: this.newest, to: length, tag: "span", name: "now" }, next];
  }

  private styled({ from, to }: Run): Node[] {
    const nodes: Node[] = [];
    let plain = from;
    for (const style of this.styles) {
      const [begin, end] = [Math.max(from, style.from), Math.min(to, style.to)];
      if (begin >= end) continue;
      if (plain < begin) nodes.push(new Text(this.source.slice(plain, begin)));
      const words = made(style.tag, this.source.slice(begin, end), style.name);
      if (style.tag === "s") words.title = "Not heard";
      nodes.push(words);
      plain = end;
    }
    if (plain < to) nodes.push(new Text(this.source.slice(plain, to)));
    return nodes;
  }
}
