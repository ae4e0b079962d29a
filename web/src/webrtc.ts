/**
 * The line over WebRTC: sound goes as Opus in both directions, events over the data channel `oai-events`.
 *
 * The server plays out, and so knows what was heard; this side mutes at once when it must be silent.
 */

import { CallPlayhead } from "./call_playhead";
import type { Camera } from "./camera";
import type { Line, LineEvents, Place } from "./line";
import { Meter } from "./meter";
import type { Microphone } from "./microphone";
import onsetUrl from "./onset.worklet.ts?worker&url";
import { PlayoutDelay } from "./playout_delay";
import { Problem, problemOf } from "./problem";
import type { Ticket } from "./resume";
import { get, iceServers, refusal } from "./server";
import type { ClientEvent, ServerEvent } from "./wire";

const OPEN_TIMEOUT_MS = 4_000; // a call takes some 200 ms, through a relay a second; longer than this no path will be found
const DISCONNECTED_MS = 5_000; // a network that changes comes back within it, or not at all
const DEFAULT_MAX_BYTES = 65_535;

/**
 * An open call; with a ticket, another way to the one that it names. Throws the Problem that is in the way, and what
 * `signal` says.
 */
export async function openWebRtc(
  place: Place,
  element: HTMLAudioElement,
  events: LineEvents,
  signal: AbortSignal,
  ticket: Ticket | null = null,
): Promise<Line> {
  if (!("RTCPeerConnection" in window)) throw new Problem("unsupported", "This browser has no WebRTC.");
  const servers = await iceServers(place);
  signal.throwIfAborted();
  const call = new Call(new RTCPeerConnection({ iceServers: servers }), element, events, ticket !== null);
  try {
    const { sdp, hangUp } = await offered(place, ticket, await call.offer());
    await call.answer(sdp, hangUp);
    await call.opened(servers.some(isTurn), signal);
  } catch (error) {
    call.close(); // and hang up: a socket may take its place, and the server would wait for the call's client
    throw error;
  }
  return call;
}

interface Answer {
  readonly sdp: string;
  /** Frees the call's place at the server; also as the page goes away. */
  hangUp(): Promise<unknown>;
}

async function offered(place: Place, ticket: Ticket | null, sdp: string): Promise<Answer> {
  const model = place.model === null ? "" : `?model=${encodeURIComponent(place.model)}`;
  const query = ticket === null ? model : `?resume=${ticket.token}&after=${ticket.after}`;
  const response = await get(place, `v1/realtime/calls${query}`, { method: "POST", body: sdp, headers: { "Content-Type": "application/sdp" } });
  if (!response.ok) throw await refusal(response, place.key);
  const id = response.headers.get("Location")?.split("/").at(-1);
  const end = `v1/realtime/calls/${id}/hangup`;
  return { sdp: await response.text(), hangUp: () => get(place, end, { method: "POST", keepalive: true }) };
}

function isTurn({ urls }: RTCIceServer): boolean {
  return [urls].flat().some((url) => /^turns?:/.test(url));
}

class Call implements Line {
  readonly kind = "webrtc";
  readonly takesVideo = true;
  readonly tellsPlayed = true;
  playing = false;
  private readonly channel: RTCDataChannel;
  private readonly sound: RTCRtpTransceiver;
  private readonly picture: RTCRtpTransceiver;
  private readonly stream: MediaStream; // the answer's sound
  private readonly early: string[] = []; // events that came before `begin`
  private readonly context = new AudioContext({ latencyHint: "interactive" });
  private readonly delay: PlayoutDelay;
  private readonly playhead: CallPlayhead;
  private meter: Meter | null = null;
  private reports = false; // whether the server wants to know the delay: Parley's own
  private silent = false; // until the next answer sounds
  private allowed = true; // that next answer may
  private midway: boolean; // of an answer, perhaps: that it began was told over the connection before
  private timer = 0;
  private hangUp: Answer["hangUp"] | null = null;

  constructor(
    private readonly peer: RTCPeerConnection,
    private readonly element: HTMLAudioElement,
    private readonly events: LineEvents,
    readonly resumed: boolean,
  ) {
    this.midway = resumed;
    this.channel = peer.createDataChannel("oai-events");
    this.sound = peer.addTransceiver("audio", { direction: "sendrecv" });
    this.picture = peer.addTransceiver("video", { direction: "sendonly" });
    this.stream = new MediaStream([this.sound.receiver.track]);
    const output_s = () => this.context.outputLatency || 0; // Safari reports none
    this.delay = new PlayoutDelay(this.sound.receiver, output_s, (ms) => this.report(ms));
    this.playhead = new CallPlayhead(this.sound.receiver, output_s, (head) => events.played(null, head));
    this.channel.onmessage = ({ data }: MessageEvent<string>) => this.early.push(data);
  }

  get maxBytes(): number {
    return Math.min(this.peer.sctp?.maxMessageSize ?? DEFAULT_MAX_BYTES, 1 << 18);
  }

  level(): number {
    return this.element.muted ? 0 : (this.meter?.level() ?? 0);
  }

  async offer(): Promise<string> {
    await this.peer.setLocalDescription();
    return this.peer.localDescription!.sdp;
  }

  async answer(sdp: string, hangUp: Answer["hangUp"]): Promise<void> {
    this.hangUp = hangUp;
    await this.peer.setRemoteDescription({ type: "answer", sdp });
  }

  /** Waits until events flow. */
  opened(hasTurn: boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      const fail = () => reject(noPath(hasTurn));
      this.timer = window.setTimeout(fail, OPEN_TIMEOUT_MS);
      this.peer.onconnectionstatechange = () => this.peer.connectionState === "failed" && fail();
      const open = () => {
        clearTimeout(this.timer);
        this.watch();
        resolve();
      };
      if (this.channel.readyState === "open") open();
      else this.channel.onopen = open;
    });
  }

  begin(): void {
    this.element.muted = this.silent;
    this.element.srcObject = this.stream;
    void this.element.play().catch(() => undefined); // until the user's first click; `wake` plays it then
    this.listen().catch((error: unknown) => this.events.trouble(problemOf(error, "Listening to the answer")));
    this.channel.onmessage = ({ data }: MessageEvent<string>) => this.receive(data);
    for (const text of this.early.splice(0)) this.receive(text);
  }

  send(event: ClientEvent): boolean {
    if (this.channel.readyState !== "open") return false;
    const text = JSON.stringify(event);
    if (3 * text.length > this.maxBytes && new TextEncoder().encode(text).length > this.maxBytes) {
      this.events.trouble(new Problem("refused", `This is more than a call can carry (${event.type}): make it shorter.`));
      return true; // another line would take no more
    }
    this.channel.send(text);
    this.events.sent(event);
    return true;
  }

  async hear(microphone: Microphone | null): Promise<void> {
    await this.sound.sender.replaceTrack(microphone?.track ?? null);
  }

  async see(camera: Camera | null): Promise<void> {
    await this.picture.sender.replaceTrack(camera?.track ?? null);
  }

  async silence(): Promise<null> {
    this.silent = true;
    this.allowed = false;
    this.element.muted = true;
    if (this.playing) this.send({ type: "output_audio_buffer.clear" });
    this.play(false);
    return null;
  }

  resume(): void {
    this.allowed = true;
  }

  close(): void {
    clearTimeout(this.timer);
    this.delay.watch(false);
    this.playhead.stop();
    this.peer.onconnectionstatechange = null;
    this.channel.onopen = this.channel.onmessage = this.channel.onclose = null;
    this.playing = false;
    if (this.element.srcObject === this.stream) this.element.srcObject = null; // else another line sounds
    if (this.context.state !== "closed") void this.context.close();
    // First the server, since it would not know a call that has closed itself.
    const gone = this.hangUp?.().catch(() => undefined) ?? Promise.resolve();
    this.hangUp = null;
    void gone.then(() => this.peer.close());
  }

  private receive(text: string): void {
    const event = JSON.parse(text) as ServerEvent;
    if (event.type === "session.created" || event.type === "session.updated") this.reports = event.session.parley !== undefined;
    if (event.type.startsWith("output_audio_buffer")) this.midway = false;
    if (event.type === "output_audio_buffer.started") this.started();
    if (event.type === "output_audio_buffer.stopped" || event.type === "output_audio_buffer.cleared") this.play(false);
    this.events.received(event);
  }

  /** The rest of the silenced answer has been played out by now. */
  private started(): void {
    if (!this.allowed) return;
    this.silent = false;
    this.element.muted = false;
    this.playhead.start();
    this.play(true);
  }

  private play(playing: boolean): void {
    if (playing === this.playing) return;
    this.playing = playing;
    this.delay.watch(playing);
    if (!playing) this.playhead.stop();
    this.events.changed();
  }

  /** An answer sounds that began over the connection before: how much of it was heard there is not known. */
  private goOn(): void {
    this.midway = false;
    this.events.played(null, null);
    this.play(true);
  }

  private report(delay_ms: number): void {
    if (this.reports) this.send({ type: "parley.playout.delay", delay_ms });
  }

  private watch(): void {
    this.channel.onclose = () => this.lost("the server ended the call");
    this.peer.onconnectionstatechange = () => {
      clearTimeout(this.timer);
      const state = this.peer.connectionState;
      if (state === "failed") this.lost("no path is left");
      if (state === "disconnected") this.timer = window.setTimeout(() => this.lost("nothing comes any more"), DISCONNECTED_MS);
    };
  }

  private lost(reason: string): void {
    this.hangUp = null;
    this.close();
    this.events.closed(new Problem("lost", `The call was lost (${reason}).`));
  }

  /** The remote sound, beside the element that plays it: its level, and when it begins. */
  private async listen(): Promise<void> {
    const source = this.context.createMediaStreamSource(this.stream);
    this.meter = Meter.of(source);
    if (this.context.audioWorklet === undefined) return; // an insecure address: the first sound is not timed
    await this.context.audioWorklet.addModule(onsetUrl);
    if (this.context.state === "closed") return;
    const node = new AudioWorkletNode(this.context, "onset", { channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = ({ data }: MessageEvent<number>) => this.heard(data);
    source.connect(node).connect(this.context.destination);
    void this.context.resume().catch(() => undefined); // closed before the user's first click
  }

  private heard(time_s: number): void {
    if (this.silent) return;
    if (this.midway) this.goOn();
    const latency_s = this.context.outputLatency || 0; // Safari reports none
    this.events.audible(performance.now() + (time_s - this.context.currentTime + latency_s) * 1000, null);
  }
}

function noPath(hasTurn: boolean): Problem {
  const next = hasTurn
    ? "its TURN server did not help: check server.ice_servers and the TURN server's password."
    : "a firewall may block UDP: name a TURN server in server.ice_servers.";
  return new Problem("ice", `No path for a WebRTC call to the server was found; ${next}`);
}
