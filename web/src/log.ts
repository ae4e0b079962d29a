/** Everything on the wire, for those who want to look: filtered, bounded, copied as JSON lines. */

import { element, made } from "./dom";
import type { ClientEvent, ServerEvent } from "./library";

const MAX_LINES = 400; // some turns; a line is at most a few hundred characters
const MAX_CHARS = 64; // of one field; audio and pictures are longer
const ID = /^[a-z]+_[0-9a-f]{8,}$/; // told by its beginning

/** Many, and all alike. */
const MEDIA: ReadonlySet<string> = new Set(["input_audio_buffer.append", "response.output_audio.delta", "parley.camera.frame"]);

const panel = element("log");
const toggle = element<HTMLButtonElement>("open-log");
const list = element("events");
const filter = element<HTMLInputElement>("filter");

export class Log {
  private readonly lines: string[] = [];
  private run = { type: "", count: 0 }; // of equal pieces of sound, or pictures

  constructor(private readonly now: () => number = () => performance.now()) {
    toggle.addEventListener("click", () => this.toggle());
    filter.addEventListener("input", () => this.show());
    element("clear-log").addEventListener("click", () => this.clear());
    element("copy-log").addEventListener("click", () => void this.copy());
  }

  add(direction: "in" | "out", event: ServerEvent | ClientEvent): void {
    const runs = MEDIA.has(event.type) && event.type === this.run.type;
    this.run = { type: event.type, count: runs ? this.run.count + 1 : 1 };
    const text = runs ? `${event.type} ×${this.run.count}` : brief(event);
    const line = `${(this.now() / 1000).toFixed(3)} ${direction === "in" ? "←" : "→"} ${text}`;
    if (runs) this.forgetLast();
    this.lines.push(line);
    if (this.lines.length > MAX_LINES) this.lines.shift();
    if (!panel.hidden && this.matches(line)) this.append(line);
  }

  private forgetLast(): void {
    if (this.matches(this.lines.pop()!)) list.lastElementChild?.remove();
  }

  private toggle(): void {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) this.show();
  }

  private show(): void {
    list.replaceChildren(...this.shown().map((line) => made("li", line)));
    list.scrollTop = list.scrollHeight;
  }

  private append(line: string): void {
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    list.append(made("li", line));
    if (list.childElementCount > MAX_LINES) list.firstElementChild?.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  private shown(): string[] {
    return this.lines.filter((line) => this.matches(line));
  }

  private matches(line: string): boolean {
    return line.toLowerCase().includes(filter.value.toLowerCase());
  }

  private clear(): void {
    this.lines.length = 0;
    this.show();
  }

  private async copy(): Promise<void> {
    const button = element("copy-log");
    try {
      await navigator.clipboard.writeText(this.shown().join("\n"));
      button.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(list); // not allowed: the user copies what is selected
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}

/** The event on one line; what is long is told by its length. */
function brief(event: ServerEvent | ClientEvent): string {
  const { type, ...fields } = event;
  return `${type} ${JSON.stringify(fields, (name, value: unknown) => (name === "event_id" ? undefined : shortened(value)))}`;
}

function shortened(value: unknown): unknown {
  if (typeof value !== "string") return value;
  if (ID.test(value)) return `${value.slice(0, 10)}…`;
  return value.length > MAX_CHARS ? `${value.slice(0, 12)}… ${value.length} characters` : value;
}
