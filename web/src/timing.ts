/** The time to the first sound: the last figure, those of the last turns, and where the last one's milliseconds went. */

import { element, made } from "./dom";
import { durationOf } from "./duration";
import type { After, FirstSound } from "./library";

/** The server's terms in words; a term that is not here keeps its own name. */
const TERMS: Record<string, string> = {
  queue: "Queue",
  ears: "Hearing",
  thinker_prefill: "Reading the prompt",
  thinker_tokens: "First words",
  talker: "Generating speech",
  code2wav: "Decoding audio",
  packet: "Packing",
};
const AFTER: Record<After, string> = {
  sent: "from sending to the first sound",
  released: "from letting go to the first sound",
  spoken: "from your last word to the first sound",
  ended: "from the end of your turn to the first sound",
};
const SILENCE = "Silence that ended the turn";
const SERVER = "Server";
const REST = "Network and playback";
const SHOWN = 20; // turns
const SPREAD_FROM = 3; // turns: fewer say little
const SHORTEST_MS = 1; // shorter steps of the server share a row

/** A stretch of time on the way to the first sound; 0 is the end of what the user said. */
interface Span {
  readonly name: string;
  readonly from_ms: number;
  readonly ms: number;
}

export class Timing {
  private readonly figures: number[] = [];

  /** A long answer's figure comes again, with its parts, when it is complete. */
  show(first: FirstSound): void {
    if (this.figures.at(-1) !== first.heard_ms) this.figures.push(first.heard_ms);
    if (this.figures.length > SHOWN) this.figures.shift();
    const figure = durationOf(first.heard_ms);
    element("latency").hidden = false;
    element("figure").textContent = element("figure-large").textContent = figure;
    element("after").textContent = AFTER[first.after];
    this.showSpread();
    const spans = spansOf(first);
    element("bars").replaceChildren(...spans.map((span) => row(span, Math.min(...spans.map(({ from_ms }) => from_ms)), first.heard_ms)));
  }

  private showSpread(): void {
    const slowest = Math.max(...this.figures);
    const { length } = this.figures;
    element("last-turns").hidden = length < SPREAD_FROM;
    const words = `Slowest of ${length}: ${durationOf(slowest)}, median ${durationOf(rank(this.figures, 0.5))}`;
    const spark = element("spark");
    spark.setAttribute("aria-label", words);
    element("spread").textContent = words;
    spark.replaceChildren(
      ...this.figures.map((ms) => {
        const bar = made("i");
        bar.style.setProperty("--share", String(ms / slowest));
        bar.title = durationOf(ms);
        return bar;
      }),
    );
  }
}

/** The nearest rank of a share of the figures. */
function rank(figures: readonly number[], share: number): number {
  const sorted = [...figures].sort((a, b) => a - b);
  return sorted[Math.ceil(share * sorted.length) - 1]!;
}

/** The silence that ended the turn, the server's terms one after the other, and what is left of the time to the ear. */
function spansOf({ heard_ms, after, ledger }: FirstSound): Span[] {
  if (ledger === null) return [{ name: "Total", from_ms: 0, ms: heard_ms }]; // the parts come when the answer ends
  const turn_ms = after === "spoken" ? (ledger.turn_ms ?? 0) : 0;
  let at_ms = turn_ms - (ledger.ahead_ms ?? 0);
  const spans = Object.entries(ledger.terms_ms).map(([name, ms]) => {
    const span = { name: TERMS[name] ?? name, from_ms: at_ms, ms };
    at_ms += ms;
    return span;
  });
  const silence = after === "spoken" ? [{ name: SILENCE, from_ms: 0, ms: turn_ms }] : [];
  const from_ms = Math.max(turn_ms, at_ms); // an answer that was ready early waits for the turn's end
  return [...silence, ...joined(spans), { name: REST, from_ms, ms: Math.max(0, heard_ms - from_ms) }];
}

/** The steps below a millisecond as one, in the place of the first. */
function joined(spans: readonly Span[]): Span[] {
  const isShort = ({ ms }: Span) => ms < SHORTEST_MS;
  const short = spans.filter(isShort);
  const server: Span = { name: SERVER, from_ms: short[0]?.from_ms ?? 0, ms: short.reduce((sum, { ms }) => sum + ms, 0) };
  return spans.flatMap((span) => (span === short[0] ? [server] : isShort(span) ? [] : [span]));
}

function row({ name, from_ms, ms }: Span, first_ms: number, last_ms: number): HTMLElement {
  const line = made("tr", "", name === SILENCE ? "silence" : "");
  const label = made("th", name);
  label.scope = "row";
  const share = made("td", "", "share");
  const whole_ms = Math.max(1, last_ms - first_ms);
  share.style.setProperty("--from", String((from_ms - first_ms) / whole_ms));
  share.style.setProperty("--share", String(ms / whole_ms));
  line.append(label, made("td", ms < 10 ? `${ms.toFixed(1)} ms` : durationOf(ms)), share);
  return line;
}
