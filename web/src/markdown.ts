/** The subset of Markdown that language models write, parsed to elements whose texts are ranges of the source. */

/** A text: the characters `from` to `to` of the source. */
export interface Run {
  readonly from: number;
  readonly to: number;
}

/** An element with its parts. `kind` is its class, `href` a link's address, `start` the first number of a list. */
export interface Tagged {
  readonly tag: Tag;
  readonly parts: readonly Part[];
  readonly kind?: string;
  readonly href?: string;
  readonly start?: number;
}

export type Part = Run | Tagged;

type Tag = "p" | "pre" | "hr" | "ul" | "ol" | "li" | "blockquote" | "table" | "tr" | "th" | "td" | Inline;
type Inline = "strong" | "em" | "del" | "code" | "a";

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}#{1,6}[ \t]+/;
const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/;
const ITEM = /^([ \t]*)([-*+]|(\d{1,9})[.)])[ \t]+(?=\S)/;
const QUOTE = /^ {0,3}>[ \t]?/;
const DASHES = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BLANK = /^[ \t]*$/;

/** Emphasis by its mark, the longest marks first. */
const EMPHASIS: readonly (readonly [mark: string, tags: readonly Inline[]])[] = [
  ["***", ["strong", "em"]],
  ["**", ["strong"]],
  ["__", ["strong"]],
  ["~~", ["del"]],
  ["*", ["em"]],
  ["_", ["em"]],
];
const CODE = /(`+)(?!`)([^]*?[^`])\1(?!`)/y;
const LINK = /\[([^[\]]+)\]\((https?:\/\/[^\s()]+)\)/y;
const ESCAPE = /\\[!-/:-@[-`{-~]/y;

/** The blocks of a source; every letter that is shown is in one of their runs. */
export function parse(source: string): Tagged[] {
  return new Blocks(source).all();
}

interface Line extends Run {
  readonly text: string;
}

class Blocks {
  private readonly lines: readonly Line[];
  private at = 0;

  constructor(private readonly source: string) {
    let from = 0;
    this.lines = source.split("\n").map((text) => {
      const line = { from, to: from + text.length, text };
      from = line.to + 1;
      return line;
    });
  }

  all(): Tagged[] {
    const blocks: Tagged[] = [];
    while (this.at < this.lines.length) {
      if (BLANK.test(this.line.text)) this.at++;
      else blocks.push(this.block());
    }
    return blocks;
  }

  private get line(): Line {
    return this.lines[this.at]!;
  }

  private block(): Tagged {
    const { text } = this.line;
    if (FENCE.test(text)) return this.fenced();
    if (HEADING.test(text)) return { tag: "p", kind: "heading", parts: this.inlineAfter(HEADING) };
    if (RULE.test(text)) return { tag: "hr", parts: this.skip() };
    if (QUOTE.test(text)) return { tag: "blockquote", parts: this.quoted() };
    if (ITEM.test(text)) return this.list();
    if (this.atTable()) return this.table();
    return this.paragraph();
  }

  private skip(): Part[] {
    this.at++;
    return [];
  }

  /** The rest of this line behind its mark. */
  private inlineAfter(mark: RegExp): Part[] {
    const { from, to, text } = this.line;
    this.at++;
    return inline(this.source, from + mark.exec(text)![0].length, to);
  }

  private fenced(): Tagged {
    const fence = FENCE.exec(this.line.text)![1]!;
    const first = ++this.at;
    while (this.at < this.lines.length && this.line.text.trim() !== fence) this.at++;
    const code = this.lines.slice(first, this.at);
    this.at++;
    const parts = code.length > 0 ? [{ from: code[0]!.from, to: code.at(-1)!.to }] : [];
    return { tag: "pre", parts: [{ tag: "code", parts }] };
  }

  private quoted(): Part[] {
    const parts: Part[] = [];
    while (this.at < this.lines.length && QUOTE.test(this.line.text)) this.append(parts, this.inlineAfter(QUOTE));
    return parts;
  }

  /** Appends a line: the break before it is the source's. */
  private append(parts: Part[], line: readonly Part[]): void {
    const from = this.lines[this.at - 1]!.from;
    if (parts.length > 0) parts.push({ from: from - 1, to: from });
    parts.push(...line);
  }

  private list(): Tagged {
    const [, indent, mark, number] = ITEM.exec(this.line.text)!;
    const items: Tagged[] = [];
    for (;;) {
      const item = ITEM.exec(this.afterBlank()?.text ?? "");
      if (item === null || item[1]!.length !== indent!.length || (item[3] === undefined) !== (number === undefined)) break;
      while (BLANK.test(this.line.text)) this.at++;
      items.push(this.item(indent!.length));
    }
    return number === undefined ? { tag: "ul", parts: items } : { tag: "ol", start: Number.parseInt(mark!), parts: items };
  }

  /** An item with the lines that continue it and the lists within it. */
  private item(indent: number): Tagged {
    const parts = this.inlineAfter(ITEM);
    while (this.at < this.lines.length) {
      const inner = ITEM.exec(this.afterBlank()?.text ?? "");
      if (inner !== null && inner[1]!.length > indent) {
        while (BLANK.test(this.line.text)) this.at++;
        parts.push(this.list());
      } else if (!this.begins() && !BLANK.test(this.line.text)) this.append(parts, this.inlineAfter(/^[ \t]*/));
      else break;
    }
    return { tag: "li", parts };
  }

  private afterBlank(): Line | undefined {
    return this.lines.slice(this.at).find(({ text }) => !BLANK.test(text));
  }

  private atTable(): boolean {
    const next = this.lines[this.at + 1]?.text ?? "";
    return this.line.text.includes("|") && next.includes("-") && DASHES.test(next) && cells(this.line).length === cells(this.lines[this.at + 1]!).length;
  }

  private table(): Tagged {
    const rows = [this.row("th")];
    this.at++; // the dashes
    while (this.at < this.lines.length && this.line.text.includes("|")) rows.push(this.row("td"));
    return { tag: "table", parts: rows };
  }

  private row(tag: "th" | "td"): Tagged {
    const parts = cells(this.line).map(({ from, to }) => ({ tag, parts: inline(this.source, from, to) }));
    this.at++;
    return { tag: "tr", parts };
  }

  private paragraph(): Tagged {
    const first = this.line;
    do this.at++;
    while (this.at < this.lines.length && !BLANK.test(this.line.text) && !this.begins());
    const from = first.from + first.text.search(/\S/);
    return { tag: "p", parts: inline(this.source, from, this.lines[this.at - 1]!.to) };
  }

  /** Whether another block begins at this line. */
  private begins(): boolean {
    return [FENCE, HEADING, RULE, QUOTE, ITEM].some((mark) => mark.test(this.line.text)) || this.atTable();
  }
}

/** The cells of a table's row, without the spaces around their words. */
function cells({ from, text }: Line): Run[] {
  const found: Run[] = [];
  for (const { index, 0: cell } of text.matchAll(/(?:\\.|[^|\\])+/g)) {
    const words = cell.trim();
    const begin = from + index + cell.indexOf(words);
    if (words !== "" || (index > 0 && index + cell.length < text.length)) found.push({ from: begin, to: begin + words.length });
  }
  return found;
}

/** The texts and the emphasis of a range. */
function inline(source: string, from: number, to: number): Part[] {
  const parts: Part[] = [];
  let plain = from;
  let at = from;
  const take = (part: readonly Part[], end: number) => {
    if (plain < at) parts.push({ from: plain, to: at });
    parts.push(...part);
    plain = at = end;
  };
  while (at < to) {
    const mark = EMPHASIS.find(([mark]) => source.startsWith(mark, at));
    const end = mark && closing(source, at, to, mark[0]);
    const code = matched(CODE, source, at, to);
    const link = matched(LINK, source, at, to);
    if (matched(ESCAPE, source, at, to)) {
      take([], at + 1); // the backslash is not shown, and what it escapes is no mark
      at++;
    } else if (code !== null) {
      const begin = at + code[1]!.length;
      take([{ tag: "code", parts: [{ from: begin, to: begin + code[2]!.length }] }], at + code[0].length);
    } else if (link !== null) {
      take([{ tag: "a", href: link[2]!, parts: inline(source, at + 1, at + 1 + link[1]!.length) }], at + link[0].length);
    } else if (mark && end) {
      const inner = inline(source, at + mark[0].length, end);
      take(mark[1].reduceRight<readonly Part[]>((parts, tag) => [{ tag, parts }], inner), end + mark[0].length);
    } else at += mark?.[0].length ?? 1;
  }
  take([], to);
  return parts;
}

function matched(pattern: RegExp, source: string, at: number, to: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  const found = pattern.exec(source);
  return found !== null && at + found[0].length <= to ? found : null;
}

/** Where the emphasis that begins at `at` ends; null: the mark is an ordinary character. */
function closing(source: string, at: number, to: number, mark: string): number | null {
  const letter = (index: number) => /[\p{L}\p{N}]/u.test(source[index] ?? "");
  const space = (index: number) => index < 0 || index >= to || /\s/.test(source[index]!);
  const first = at + mark.length;
  if (space(first) || (mark[0] === "_" && letter(at - 1))) return null;
  for (let end = source.indexOf(mark, first + 1); end >= 0 && end + mark.length <= to; end = source.indexOf(mark, end + mark.length)) {
    const after = end + mark.length;
    const longer = source[after] === mark[0] || source[end - 1] === mark[0]; // another mark
    if (!space(end - 1) && !longer && source[end - 1] !== "\\" && !(mark[0] === "_" && letter(after))) return end;
  }
  return null;
}
