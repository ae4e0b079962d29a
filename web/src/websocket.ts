/**
 * The line over a WebSocket: sound goes as base64 PCM in events, and this side knows what of an answer was heard.
 */

import type { Line, LineEvents, Place } from "./line";
import type { Microphone } from "./microphone";
import { fromBase64, toBase64 } from "./pcm";
import type { Player } from "./player";
import { Problem } from "./problem";
import { whyRefused } from "./server";
import type { Ticket } from "./resume";
import type { ClientEvent, ServerEvent } from "./wire";

const GREETING_TIMEOUT_MS = 10_000;
const MAX_PENDING_BYTES = 320_000; // 5 s of microphone in base64: later sound is worth nothing by the time it arrives
const KEY_SUBPROTOCOL = "openai-insecure-api-key."; // browsers can't set a header on a socket
const MAX_BYTES = 12 << 20; // the server takes 16 MiB

/** An open line, greeted by the server. Throws the Problem that is in the way. */
export async function openWebSocket(place: Place, player: Player, events: LineEvents): Promise<Line> {
  const { socket, greeting } = await greet(place);
  const line = new SocketLine(socket, player, events);
  line.receive(greeting);
  return line;
}

/** The line back to a session, in the midst of it; null when the session is over, or there is no way now. */
export async function resumeWebSocket(place: Place, ticket: Ticket, player: Player, events: LineEvents): Promise<Line | null> {
  try {
    const { socket, greeting } = await greet(place, { resume: ticket.token, after: String(ticket.after) });
    const line = new SocketLine(socket, player, events, true);
    line.receive(greeting);
    return line;
  } catch {
    return null; // what is in the way is told when a new session finds the same
  }
}

/**
 * A socket and the first message on it, which shows, more than the mere handshake, that a server is there. The caller
 * sets its handlers before the next one can come: promises are settled before messages are told. Throws the Problem that is in the way.
 */
export async function greet(place: Place, query = {}): Promise<{ socket: WebSocket; greeting: string }> {
  const socket = new WebSocket(addressOf(place, query), place.key === null ? ["realtime"] : ["realtime", KEY_SUBPROTOCOL + place.key]);
  try {
    return { socket, greeting: await first(socket) };
  } catch (reason) {
    socket.onclose = null;
    socket.close();
    throw await whyRefused(place, reason as string);
  }
}

/** The first message. Rejects with the reason that the close gave. */
function first(socket: WebSocket): Promise<string> {
  return new Promise((resolve, reject: (reason: string) => void) => {
    const timer = setTimeout(() => reject("it said nothing"), GREETING_TIMEOUT_MS);
    socket.onmessage = ({ data }: MessageEvent<string>) => {
      clearTimeout(timer);
      resolve(data);
    };
    socket.onclose = ({ reason }) => {
      clearTimeout(timer);
      reject(reason);
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
  readonly takesVideo = false;
  private microphone: Microphone | null = null;
  private hushed = false;
  private item: string | null = null; // of the answer that sounds, or has

  constructor(
    private readonly socket: WebSocket,
    private readonly player: Player,
    private readonly events: LineEvents,
    readonly resumed = false,
  ) {
    const full = new Problem("sound", "The answer is longer than this page can hold: some of it is lost, ask for a shorter one.");
    player.open({
      audible: (item, at_ms) => events.audible(at_ms, item),
      changed: () => events.changed(),
      full: () => events.trouble(full),
    });
    socket.onmessage = ({ data }: MessageEvent<string>) => this.receive(data);
    // What has come is still played: the answer may go on over the next line.
    socket.onclose = ({ reason }) => events.closed(new Problem("lost", `The connection was lost${reason && ` (${reason})`}.`));
  }

  get playing(): boolean {
    return this.player.playing;
  }

  level(): number {
    return this.player.level();
  }

  receive(text: string): void {
    const event = JSON.parse(text) as ServerEvent;
    if (event.type === "response.output_audio.delta") this.play(event.item_id, event.delta);
    this.events.received(event);
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

  async see(): Promise<void> {
    // A socket carries no track: pictures go as items.
  }

  async silence(): ReturnType<Line["silence"]> {
    this.hushed = true;
    const item = this.item;
    this.item = null;
    const heard = item === null ? null : await this.player.flush();
    return heard?.item === item ? heard : null;
  }

  resume(): void {
    this.hushed = false;
    this.item = null;
  }

  close(): void {
    this.socket.onclose = this.socket.onmessage = null;
    this.socket.close(1000);
    this.player.close();
    void this.microphone?.capture(null);
  }

  private play(item: string, delta: string): void {
    if (this.hushed) return;
    this.item = item;
    void this.player.play(item, fromBase64(delta));
  }

  private piece(pcm: Int16Array): void {
    if (this.socket.bufferedAmount > MAX_PENDING_BYTES) return;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
  }
}
