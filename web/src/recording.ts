/** The events of the conversation, as a file: versioned JSON lines. Sound, camera frames and keys are left out. Knows no element. */

import type { AnyEvent, Direction } from "./event_summary";

const VERSION = 1;
const MAX_EVENTS = 20_000; // an hour of talk: the microphone's 50 pieces a second share a line
const PIECE = "input_audio_buffer.append";
const SOUND: Record<string, string> = {
  [PIECE]: "audio",
  "response.output_audio.delta": "delta",
  "parley.camera.frame": "image_url",
};
const SECRETS: ReadonlySet<string> = new Set(["resume_token", "client_secret", "authorization", "headers", "api_key"]);

interface Line {
  readonly at_ms: number;
  readonly direction: Direction;
  readonly event: AnyEvent & { bytes?: number };
}

export class Recording {
  private lines: Line[] = [];
  private readonly began = new Date();

  constructor(private readonly now: () => number = () => performance.now()) {}

  add(direction: Direction, event: AnyEvent): void {
    const sound = SOUND[event.type];
    const value = sound && (event as unknown as Record<string, unknown>)[sound];
    const bytes = typeof value === "string" ? Math.floor(value.length * 0.75) : undefined;
    const last = this.lines.at(-1)?.event;
    if (event.type === PIECE && last?.type === PIECE && bytes !== undefined && last.bytes !== undefined) {
      last.bytes += bytes;
      return;
    }
    const kept = bytes === undefined ? event : { ...event, [sound!]: "", bytes };
    this.lines.push({ at_ms: Math.round(this.now() * 1000) / 1000, direction, event: kept as Line["event"] });
    if (this.lines.length > MAX_EVENTS) this.lines.shift();
  }

  /** One JSON object a line: first the head, then the events in order. */
  get text(): string {
    const head = { parley_session: VERSION, began: this.began.toISOString() };
    return [head, ...this.lines].map((line) => JSON.stringify(line, withoutSecrets)).join("\n") + "\n";
  }
}

function withoutSecrets(name: string, value: unknown): unknown {
  return SECRETS.has(name) ? undefined : value;
}
