/** The row below each answer: its figure, its sound again, its words to copy. */

import { copyFrom } from "./clipboard";
import { button, icon, made } from "./dom";
import { durationOf } from "./duration";
import type { ClientEvent, ServerEvent } from "./library";
import { OneSound } from "./one_sound";
import { samplesOf } from "./transcript";

const MAX_ANSWERS = 30; // whose sound is kept: at 20 s each some 30 MB
const RATE_HZ = 24_000;

interface Answer {
  readonly figure: HTMLElement;
  readonly replay: HTMLButtonElement;
  readonly pieces: string[]; // of its sound, in base64; a call brings none in events
}

export class Answers {
  private readonly answers = new Map<string, Answer>();
  private newest: string | null = null; // the answer that is spoken, or was spoken last
  private readonly player = new OneSound();

  /** `textOf` gives the words of an answer. */
  constructor(private readonly textOf: (item: string) => string) {}

  /** The pieces of the last answer's sound. */
  get lastSound(): readonly string[] {
    return (this.newest !== null && this.answers.get(this.newest)?.pieces) || [];
  }

  /** The sounds that are kept, in order. */
  get sounds(): readonly (readonly string[])[] {
    return [...this.answers.values()].map(({ pieces }) => pieces);
  }

  /** The row of an answer, which keeps its height whatever it holds. */
  footer(item: string): HTMLElement {
    const row = made("div", "", "meta");
    const figure = made("span");
    const replay = labelled("play", "Play again", () => void this.play(item));
    const copy = labelled("copy", "Copy", () => void copyFrom(copy, this.textOf(item)));
    replay.hidden = true;
    row.append(figure, replay, copy);
    this.answers.set(item, { ...this.known(item), figure, replay });
    this.newest = item;
    this.offer(item);
    return row;
  }

  note(event: ServerEvent | ClientEvent): void {
    if (event.type === "response.output_audio.delta") {
      const { item_id, delta } = event as { item_id: string; delta: string };
      const answer = this.answers.get(item_id) ?? this.known(item_id);
      answer.pieces.push(delta);
      this.answers.set(item_id, answer);
      this.newest = item_id;
    } else if (event.type === "response.done") {
      for (const item of this.answers.keys()) this.offer(item);
      while (this.answers.size > MAX_ANSWERS) this.forget(this.answers.keys().next().value!);
    }
  }

  /** The time to the first sound of the answer that sounds now. */
  time(ms: number): void {
    const answer = this.newest === null ? undefined : this.answers.get(this.newest);
    if (answer !== undefined) answer.figure.textContent = durationOf(ms);
  }

  clear(): void {
    this.answers.clear();
    this.newest = null;
  }

  hush(): void {
    this.player.stop();
  }

  private known(item: string): Answer {
    return this.answers.get(item) ?? { figure: made("span"), replay: made("button"), pieces: [] };
  }

  private forget(item: string): void {
    this.answers.get(item)!.replay.hidden = true;
    this.answers.delete(item);
  }

  private offer(item: string): void {
    const { replay, pieces } = this.answers.get(item)!;
    const seconds = pieces.reduce((sum, { length }) => sum + length, 0) * 0.75 / 2 / RATE_HZ;
    replay.hidden = seconds === 0;
    if (replay.lastElementChild) replay.lastElementChild.textContent = `Replay ${seconds.toFixed(1)} s`;
  }

  private async play(item: string): Promise<void> {
    const samples = samplesOf(this.answers.get(item)!.pieces);
    if (samples.length === 0) return;
    await this.player.play((context) => {
      const sound = context.createBuffer(1, samples.length, RATE_HZ);
      sound.copyToChannel(samples, 0);
      return sound;
    });
  }
}

function labelled(name: string, label: string, act: () => void): HTMLButtonElement {
  const one = button("", act, "quiet");
  one.title = label;
  one.append(icon(name), made("span", label));
  return one;
}
