/**
 * The line over a WebSocket: sound goes as base64 PCM in events, and this side knows what of an answer was heard.
 */

import type { Camera } from "./camera";
import type { Line, LineEvents, Place } from "./line";
import type { Microphone } from "./microphone";
import { fromBase64, toBase64 } from "./pcm";
import type { Player } from "./player";
import { STILL_CHARS } from "./picture";
import { Problem } from "./problem";
import { whyRefused } from "./server";
import type { Ticket } from "./resume";
import type { ClientEvent, ServerEvent } from "./wire";

const GREETING_TIMEOUT_MS = 10_000;
const MAX_PENDING_BYTES = 320_000; // 5 s of microphone in base64: later sound is worth nothing by the time it arrives
const STILL_EVERY_MS = 1_000; // what the server takes
const KEY_SUBPROTOCOL = "openai-insecure-api-key."; // browsers can't set a header on a socket
const MAX_BYTES = 12 << 20; // the server takes 16 MiB

/**
 * An open line, greeted by the server; where it is full, after a wait in line. With a ticket, one back to its session.
 * Throws the Problem that is in the way, and what `signal` says.
 */
export async function openWebSocket(
  place: Place,
  player: Player,
  events: LineEvents,
  signal: AbortSignal,
  ticket: Ticket | null = null,
): Promise<Line> {
  const query = ticket === null ? { wait: "true" } : { resume: ticket.token, after: String(ticket.after) };
  const { socket, greeting } = await greet(place, query, signal, (position) => events.queued(position));
  return new SocketLine(socket, greeting, player, events, ticket !== null);
}

/**
 * A socket and the first message on it, which shows, more than the mere handshake, that a server is there. The caller
 * sets its handlers before the next one can come: promises are settled before messages are told. Throws the Problem that
 * is in the way, and what `signal` says: then nobody stands in the server's line any more.
 */
export async function greet(
  place: Place,
  query: Record<string, string>,
  signal: AbortSignal,
  queued: (position: number) => void = () => undefined,
): Promise<{ socket: WebSocket; greeting: string }> {
  signal.throwIfAborted();
  const socket = new WebSocket(addressOf(place, query), place.key === null ? ["realtime"] : ["realtime", KEY_SUBPROTOCOL + place.key]);
  try {
    return { socket, greeting: await first(socket, signal, queued) };
  } catch (reason) {
    socket.onclose = null;
    socket.close();
    signal.throwIfAborted();
    throw await whyRefused(place, reason as string);
  }
}

/** The first message of a session; until then one's place in the line. Rejects with the reason that the close gave. */
function first(socket: WebSocket, signal: AbortSignal, queued: (position: number) => void): Promise<string> {
  return new Promise((resolve, reject: (reason: string) => void) => {
    const timer = setTimeout(() => reject("it said nothing"), GREETING_TIMEOUT_MS);
    const fail = (reason: string) => {
      clearTimeout(timer);
      reject(reason);
    };
    signal.addEventListener("abort", () => fail("it was given up"), { once: true });
    socket.onclose = ({ reason }) => fail(reason);
    socket.onmessage = ({ data }: MessageEvent<string>) => {
      clearTimeout(timer);
      const event = JSON.parse(data) as ServerEvent;
      if (event.type === "parley.queue.updated") queued(event.position);
      else if (event.type !== "error") resolve(data); // else the close that follows says why
    };
  });
}

function addressOf(place: Place, query: Record<string, string>): string {
  const url = new URL("v1/realtime", place.server);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  if (place.model !== null) url.searchParams.set("model", place.model);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

class SocketLine implements Line {
  readonly kind = "websocket";
  readonly maxBytes = MAX_BYTES;
  /** Whether the server takes pictures beside the conversation: Parley's own. */
  takesVideo = false;
  private microphone: Microphone | null = null;
  private looking = 0;
  private hushed = false;
  private item: string | null = null; // of the answer that sounds, or has

  constructor(
    private readonly socket: WebSocket,
    private readonly greeting: string,
    private readonly player: Player,
    private readonly events: LineEvents,
    readonly resumed: boolean,
  ) {
    socket.onmessage = ({ data }: MessageEvent<string>) => this.receive(data);
    // What has come is still played: the answer may go on over the next line.
    socket.onclose = ({ reason }) => {
      clearInterval(this.looking);
      events.closed(new Problem("lost", `The connection was lost${reason && ` (${reason})`}.`));
    };
  }

  get playing(): boolean {
    return this.player.playing;
  }

  get tellsPlayed(): boolean {
    return this.player.able;
  }

  begin(): void {
    const { events } = this;
    this.player.open({
      audible: (item, at_ms) => events.audible(at_ms, item),
      played: (item, head) => events.played(item, head),
      changed: () => events.changed(),
      trouble: (problem) => events.trouble(problem),
    });
    if (!this.resumed) void this.player.resume(); // no event of this session would
    this.receive(this.greeting);
  }

  level(): number {
    return this.player.level();
  }

  send(event: ClientEvent): boolean {
    if (this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(event));
    this.events.sent(event);
    return true;
  }

  async hear(microphone: Microphone | null): Promise<void> {
    if (this.microphone !== microphone) await this.microphone?.capture(null);
    this.microphone = microphone;
    await microphone?.capture((pcm) => this.piece(pcm));
  }

  /** A socket carries no track, but stills: the server keeps the newest for the user's turn. */
  async see(camera: Camera | null): Promise<void> {
    clearInterval(this.looking);
    if (camera === null) return;
    this.look(camera);
    this.looking = window.setInterval(() => this.look(camera), STILL_EVERY_MS);
  }

  async silence(): ReturnType<Line["silence"]> {
    if (this.hushed) return null; // an earlier call reports what was heard
    this.hushed = true;
    const { item } = this;
    this.item = null;
    if (item === null && !this.player.playing) return null;
    const heard = await this.player.flush();
    return item === null || heard?.item === item ? heard : null; // null: it came over the line before
  }

  resume(): void {
    this.hushed = false;
    this.item = null;
  }

  close(): void {
    this.socket.onclose = this.socket.onmessage = null;
    this.socket.close(1000);
    clearInterval(this.looking);
    void this.microphone?.capture(null);
  }

  private receive(text: string): void {
    const event = JSON.parse(text) as ServerEvent;
    if (event.type === "session.created" || event.type === "session.updated") this.takesVideo = event.session.parley !== undefined;
    if (event.type === "response.output_audio.delta") this.play(event.item_id, event.delta);
    if (event.type === "parley.output_audio.paused") void this.player.pause();
    if (event.type === "parley.output_audio.resumed") void this.player.resume();
    this.events.received(event);
  }

  private play(item: string, delta: string): void {
    if (this.hushed) return;
    this.item = item;
    void this.player.play(item, fromBase64(delta));
  }

  private look(camera: Camera): void {
    const picture = this.takesVideo && this.socket.bufferedAmount === 0 ? camera.still(STILL_CHARS) : null;
    if (picture !== null) this.send({ type: "parley.camera.frame", image_url: picture });
  }

  private piece(pcm: Int16Array): void {
    if (this.socket.bufferedAmount > MAX_PENDING_BYTES) return;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
  }
}
