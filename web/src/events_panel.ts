/** All events on the wire: one row per event, with runs folded; rows can be filtered, and opened as JSON. */

import { copyFrom } from "./clipboard";
import { button, element, fillChips, made } from "./dom";
import { kindOf, lineOf, meaningOf, pieceOf, prettyOf, runOf, type AnyEvent, type Direction, type Kind } from "./event_summary";

const MAX_ROWS = 400; // some dozens of turns
const ABOVE_PX = 8; // the room above the first row
const MAX_PIECES = 400; // characters of a folded text
const KINDS: readonly (readonly ["all" | Kind, string])[] = [
  ["all", "All"],
  ["turn", "Turns"],
  ["text", "Text"],
  ["audio", "Audio"],
  ["tool", "Tools"],
  ["error", "Errors"],
];

const list = element("events");
const filter = element<HTMLInputElement>("filter");

interface Row {
  readonly at_ms: number;
  readonly direction: Direction;
  readonly kind: Kind;
  readonly line: HTMLElement;
  event: AnyEvent; // the newest of its run
  count: number;
  text: string;
}

export class EventsPanel {
  private rows: Row[] = [];
  private runs = new Map<string, Row>(); // of the turn that goes on
  private kind: "all" | Kind = "all";

  constructor(private readonly now: () => number = () => performance.now()) {
    filter.addEventListener("input", () => this.show());
    element("clear-log").addEventListener("click", () => this.clear());
    const copy = element("copy-log");
    copy.addEventListener("click", () => void copyFrom(copy, this.copied()));
    fillChips(element("kinds"), KINDS, (kind) => {
      this.kind = kind;
      this.show();
    });
  }

  add(direction: Direction, event: AnyEvent): void {
    const run = runOf(event);
    const row = run === null ? undefined : this.runs.get(run);
    if (row !== undefined) return this.fold(row, event);
    if (event.type === "input_audio_buffer.committed" || event.type === "response.done") this.runs.clear();
    const added = this.row(direction, event);
    if (run !== null) this.runs.set(run, added);
    this.rows.push(added);
    if (this.rows.length > MAX_ROWS) this.rows.shift()!.line.remove();
    this.append(added);
  }

  private row(direction: Direction, event: AnyEvent): Row {
    const line = made("li", "", `${direction} ${kindOf(event)}`);
    const row: Row = { at_ms: this.now(), direction, kind: kindOf(event), line, event, count: 1, text: pieceOf(event) };
    const head = button("", () => toggle(row, head), "event");
    const way = made("span", direction === "in" ? "←" : "→", "way");
    way.title = direction === "in" ? "From the server" : "To the server";
    head.setAttribute("aria-expanded", "false");
    head.append(made("time", (row.at_ms / 1000).toFixed(3)), way, made("span", event.type, "name"), made("span", "", "count"), made("span", "", "brief"));
    line.append(head);
    describe(row);
    return row;
  }

  private fold(row: Row, event: AnyEvent): void {
    row.event = event;
    row.count++;
    if (row.text.length < MAX_PIECES) row.text += pieceOf(event);
    describe(row);
  }

  private append(row: Row): void {
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    row.line.hidden = !this.matches(row);
    list.append(row.line);
    if (atEnd) follow();
  }

  /** Shows the rows that are asked for; called, too, when the panel comes into sight. */
  show(): void {
    for (const row of this.rows) row.line.hidden = !this.matches(row);
    follow();
  }

  private matches({ kind, line }: Row): boolean {
    const holds = line.textContent!.toLowerCase().includes(filter.value.toLowerCase());
    return holds && (this.kind === "all" || this.kind === kind);
  }

  private clear(): void {
    this.rows = [];
    this.runs.clear();
    list.replaceChildren();
  }

  private copied(): string {
    return this.rows
      .filter((row) => this.matches(row))
      .map(({ at_ms, direction, event }) => `${(at_ms / 1000).toFixed(3)} ${direction === "in" ? "←" : "→"} ${lineOf(event)}`)
      .join("\n");
  }
}

function describe({ line, event, count, text }: Row): void {
  line.querySelector(".count")!.textContent = count > 1 ? `× ${count}` : "";
  line.querySelector(".brief")!.textContent = text || meaningOf(event);
  const json = line.querySelector("pre");
  if (json !== null) json.textContent = prettyOf(event);
}

function toggle({ line, event }: Row, head: HTMLElement): void {
  const open = line.querySelector("pre");
  head.setAttribute("aria-expanded", String(open === null));
  if (open !== null) return open.remove();
  const json = made("pre", prettyOf(event));
  json.tabIndex = 0;
  line.append(json);
  json.scrollIntoView({ block: "nearest" });
  const above_px = list.getBoundingClientRect().top + ABOVE_PX - head.getBoundingClientRect().top;
  if (above_px > 0) list.scrollTop -= above_px; // more than the panel holds: from the row's name on
  else align();
}

/** Shows the newest rows. */
function follow(): void {
  list.style.removeProperty("--rest");
  list.scrollTop = list.scrollHeight;
  align();
}

/** Scrolls on to the end of a row that the upper edge cuts. */
function align(): void {
  const { left, top } = list.getBoundingClientRect();
  const row = document.elementFromPoint(left + 1, top + ABOVE_PX)?.closest("#events li");
  if (!row || row.querySelector("pre") !== null) return;
  const box = row.getBoundingClientRect();
  const rest_px = box.bottom - top - ABOVE_PX;
  if (box.top > top + ABOVE_PX - 1 || rest_px < 1) return;
  list.style.setProperty("--rest", `${rest_px}px`);
  list.scrollTop += rest_px;
}
