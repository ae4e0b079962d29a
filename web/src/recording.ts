/** The events of the conversation, as a file: versioned JSON lines. Sound and keys are left out. Knows no element. */

import type { AnyEvent, Direction } from "./event_summary";

const VERSION = 1;
const MAX_EVENTS = 20_000; // an hour of talk
const SOUND: Record<string, string> = {
  "input_audio_buffer.append": "audio",
  "response.output_audio.delta": "delta",
  "parley.camera.frame": "image",
};
const SECRETS: ReadonlySet<string> = new Set(["resume_token", "client_secret", "authorization", "headers", "api_key"]);

interface Line {
  readonly at_ms: number;
  readonly direction: Direction;
  readonly event: AnyEvent;
}

export class Recording {
  private lines: Line[] = [];
  private readonly began = new Date();

  constructor(private readonly now: () => number = () => performance.now()) {}

  add(direction: Direction, event: AnyEvent): void {
    const sound = SOUND[event.type];
    const value = sound && (event as unknown as Record<string, unknown>)[sound];
    const kept = typeof value === "string" ? { ...event, [sound!]: "", bytes: Math.floor(value.length * 0.75) } : event;
    this.lines.push({ at_ms: Math.round(this.now() * 1000) / 1000, direction, event: kept as AnyEvent });
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
