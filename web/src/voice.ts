/** A spoken conversation with a Realtime server: devices, line and conversation, held together. Knows no element of a page. */

import { serverOf } from "./address";
import { Connection } from "./connection";
import { Conversation } from "./conversation";
import type { Wanted } from "./dial";
import { Emitter } from "./emitter";
import { Floor } from "./floor";
import { HOME } from "./home";
import { Inputs } from "./inputs";
import { keyOf } from "./key";
import type { Line, LineKind, Place } from "./line";
import { merged, picked, type Settings } from "./merge";
import { pictureOf, STILL_CHARS } from "./picture";
import { Player, playThrough } from "./player";
import { Problem, problemOf } from "./problem";
import { Resume, type Ticket } from "./resume";
import { Sayings } from "./sayings";
import { loaded } from "./server";
import type { Arguments, Schema } from "./schema";
import { sessionOf, settled, turnsBy, voiceOf, type Eagerness } from "./session";
import type { ToolContext, ToolOptions } from "./tools";
import type { Key, SessionSettings, VoiceEvents, VoiceOptions, VoiceState, Who } from "./voice_events";
import type { ClientEvent, Loaded } from "./wire";

const PICTURE_CHARS = 1_000_000;
const ENVELOPE = 1_000; // what an event adds to the picture in it
const MOST_WAITING = 64; // events of a page before its session is there
const TOO_MUCH = new Problem("refused", "Too much already waits for the connection: ask again once it is there.");

export class VoiceClient extends Emitter<VoiceEvents> {
  /** The transport of the next connection. */
  transport: Wanted;
  /** The model of the next connection; null: the server's default. */
  model: string | null;
  key: Key;
  private secret: string | null = null; // what the key's function gave last
  private readonly server: URL;
  private readonly element: HTMLAudioElement;
  private player: Player | null = null; // until the conversation ends
  /** The microphone and the camera. */
  readonly inputs = new Inputs({
    changed: () => this.emit("change"),
    lost: () => this.conversation.unheard(),
    trouble: (problem) => this.trouble(problem),
  });
  private readonly conversation: Conversation;
  private readonly connection: Connection;
  private readonly resume = new Resume();
  /** Sayings that were typed and could not be sent yet. */
  readonly sayings = new Sayings();
  private readonly floor = new Floor({
    closed: (closed) => this.inputs.mute(closed),
    begin: () => this.beginTurn(),
    end: (at_ms) => this.configured && this.conversation.endTurn(at_ms),
  });
  private changed = false; // settings were, while the server could not be told
  private configured = false; // the server has taken the session's settings
  private queued = false; // the server is full, and this client stands in line
  private broken = false; // the last trouble was the line's
  private session: Settings; // as it is wanted
  private waiting: ClientEvent[] = []; // the page's own, until the session is there

  constructor(options: VoiceOptions = {}) {
    super();
    this.server = serverOf(options.server ?? HOME);
    this.transport = options.transport ?? "auto";
    this.model = options.model ?? null;
    this.key = options.key ?? null;
    this.session = sessionOf(options);
    this.element = options.audio ?? new Audio();
    this.conversation = this.makeConversation();
    this.connection = this.makeConnection();
    this.inputs.device = options.microphone ?? null;
  }

  get state(): VoiceState {
    if (!this.connection.open) return "idle";
    if (!this.configured) return this.queued ? "waiting" : this.connection.lost ? "lost" : "connecting";
    if (this.conversation.userSpeaking || this.floor.held) return "hearing";
    if (this.line?.playing) return "speaking";
    if (this.conversation.thinking) return "thinking";
    if (this.inputs.microphone === null || !this.handsFree) return "ready";
    return this.muted ? "muted" : "listening";
  }

  /** The server's address, and the key to it. */
  get place(): Place {
    const key = typeof this.key === "function" ? this.secret : this.key;
    return { server: this.server, key, model: this.model };
  }

  get transportUsed(): LineKind | null {
    return this.line?.kind ?? null;
  }

  /** Whether the microphone is on, or being opened. */
  get talking(): boolean {
    return this.inputs.wanted;
  }

  get muted(): boolean {
    return this.floor.muted;
  }

  get handsFree(): boolean {
    return this.floor.handsFree;
  }

  /** Whether there is an answer to stop. */
  get answering(): boolean {
    return this.conversation.stoppable;
  }

  /** Peaks at this moment, 0 to 1. */
  levels(): Record<Who, number> {
    return { user: this.inputs.microphone?.level() ?? 0, answer: this.line?.level() ?? 0 };
  }

  /** Connect and open the microphone. To be called in the handler of a click or a key: only then may a page sound. */
  start(): void {
    this.connect();
    if (!this.talking) void this.inputs.listen(this.inputs.device);
  }

  /** The page goes away: words that wait for their sound are told, and the way back to this session; null: there is none. */
  leave(): Ticket | null {
    this.conversation.leave();
    return this.line === null ? null : this.resume.ticket;
  }

  /** Go on with a session that another load of the page has left, or begin anew; with the microphone, if it was on. */
  comeBack(ticket: Ticket, talking: boolean): void {
    this.resume.restore(ticket);
    this.connection.start();
    if (talking) void this.inputs.listen(this.inputs.device);
  }

  /** Connect without a microphone. */
  connect(): void {
    this.wake();
    if (!this.connection.lost) this.emit("problem", null, null); // else it is still in the way
    this.connection.start();
  }

  /** Let sound out; costs nothing when it may come already. */
  wake(): void {
    const { loudspeaker } = this;
    loudspeaker.wake().catch((error: unknown) => {
      if (loudspeaker === this.player) this.trouble(problemOf(error, "Opening the loudspeaker")); // else that conversation is over
    });
  }

  /** Have something typed or shown answered; connects first where need be. With the camera on, it is shown too. */
  ask(text: string, picture: string | null = null): void {
    this.connect();
    if (!this.sayings.add(text, picture ?? this.inputs.camera?.still(STILL_CHARS) ?? null)) this.trouble(TOO_MUCH);
    if (!this.configured) this.emit("pending", this.sayings.texts);
    this.sayWaiting();
  }

  /** The model that is loaded, its voices, and what one may ask it; needs no conversation. Throws a Problem. */
  async loaded(): Promise<Loaded | null> {
    return loaded(typeof this.key === "function" && this.secret === null ? await this.locate() : this.place);
  }

  /**
   * Let the model call a function of this page. `schema` is the JSON Schema of the arguments, with a `description` of
   * the tool; what `run` returns, or throws, is the model's to speak of. Takes the place of a tool of the same name; may
   * come in the midst of a conversation. What is returned takes the tool away. Throws a Problem.
   */
  tool<const S extends Schema>(
    name: string,
    schema: S,
    run: (args: Arguments<S>, context: ToolContext) => unknown,
    options: ToolOptions = {},
  ): () => void {
    const { tools } = this.conversation;
    tools.add(name, schema, run, options);
    this.change({ tools: [] });
    return () => {
      tools.remove(name);
      this.change({ tools: [] });
    };
  }

  /** Send an event of the protocol; it waits for the session, if there is none yet. */
  send(event: ClientEvent): void {
    if (event.type === "session.update") return this.configure((event["session"] ?? {}) as SessionSettings);
    if (this.configured) return this.conversation.pass(event);
    if (this.waiting.length < MOST_WAITING) this.waiting.push(event);
    else this.trouble(TOO_MUCH);
  }

  /** Lay settings over those of this conversation, and of later ones. */
  configure(settings: SessionSettings): void {
    this.session = merged(this.session, settings);
    this.change(settings);
  }

  /** A file as a picture for `ask`, small enough for the line. Throws a Problem. */
  read(file: Blob): Promise<string> {
    return pictureOf(file, Math.min(PICTURE_CHARS, (this.line?.maxBytes ?? STILL_CHARS) - ENVELOPE));
  }

  /** End the answer. */
  stop(): void {
    this.conversation.stop();
    this.emit("change");
  }

  mute(muted: boolean): void {
    this.floor.mute(muted);
  }

  /** The server finds the turns (hands-free), or `hold` and `release` say them (push to talk). */
  setHandsFree(handsFree: boolean): void {
    this.conversation.userSpeaking = false;
    this.floor.setHandsFree(handsFree);
    this.change({ audio: { input: { turn_detection: null } } });
  }

  /** The haste with which a pause ends the user's turn. */
  setEagerness(eagerness: Eagerness): void {
    this.configure(turnsBy(eagerness));
  }

  /** The model's instructions, from the next answer on. */
  setInstructions(instructions: string): void {
    this.configure({ instructions });
  }

  /** The user holds the key: what is said from now on is a turn. */
  hold(): void {
    if (this.handsFree || this.floor.held) return;
    this.start();
    this.floor.press();
  }

  /** The user lets the key go: the turn is answered. */
  release(): void {
    if (!this.floor.held) return;
    this.floor.release();
    this.emit("change");
  }

  /** Hang up, and let everything go: a client that nobody uses any more can be forgotten. */
  end(): void {
    this.sayings.take();
    this.emit("pending", []);
    this.letGo();
  }

  /** Try to reach a lost server now, and not at the next attempt's time. */
  retry(): void {
    this.connection.retry();
  }

  /** Everything but the sayings, which may still be sent with another key. */
  private letGo(): void {
    this.hangUp();
    this.player?.dispose();
    this.player = null;
    this.inputs.close();
    this.waiting = [];
    this.floor.mute(false);
    this.emit("change");
  }

  /** Begin anew with what `transport`, `model` and `key` say now; nothing when there is no conversation. */
  reconnect(): void {
    if (!this.connection.open) return;
    this.hangUp();
    this.player?.close();
    void this.inputs.attach(null);
    this.connection.start();
  }

  /** Play through this loudspeaker from now on; the empty string: the browser's choice. Throws a Problem. */
  useSpeaker(device: string): Promise<void> {
    return playThrough(this.element, device);
  }

  /** Be answered by this voice; a conversation that has sounded keeps its own. */
  useVoice(voice: string): void {
    this.configure(voiceOf(voice));
  }

  private get line(): Line | null {
    return this.connection.line;
  }

  private get loudspeaker(): Player {
    return (this.player ??= new Player(this.element));
  }

  private makeConversation(): Conversation {
    return new Conversation((name, ...values) => this.emit(name, ...values), {
      ready: () => this.ready(),
      trouble: (problem) => {
        this.trouble(problem);
        if (!this.configured && this.line?.resumed === false) this.end(); // without its settings there is no session
      },
      speechStarted: (item) => this.look(item),
    });
  }

  private makeConnection(): Connection {
    return new Connection(() => this.loudspeaker, { last: () => this.place, next: () => this.locate() }, () => this.transport, () => this.resume.ticket, {
      opened: (line, fellBack) => this.opened(line, fellBack),
      lost: (problem, retry_ms) => this.lost(problem, retry_ms),
      received: (event) => {
        this.emit("event", "in", event);
        this.resume.note(event);
        this.conversation.receive(event);
      },
      sent: (event) => this.emit("event", "out", event),
      queued: (position) => this.stand(position),
      changed: () => {
        this.conversation.playingChanged();
        this.emit("change");
      },
      audible: (at_ms, item) => this.conversation.audible(at_ms, item),
      played: (item, head) => this.conversation.played(item, head),
      trouble: (problem) => this.trouble(problem),
    });
  }

  private stand(position: number): void {
    this.queued = true;
    this.emit("queued", position);
    this.emit("change");
  }

  private opened(line: Line, fellBack: Problem | null): void {
    this.queued = false;
    this.resume.kind = line.kind;
    if (line.resumed) {
      this.conversation.resume(line);
    } else {
      this.conversation.reset();
      this.conversation.line = line;
    }
    this.emit("line", line.kind, fellBack, line.resumed);
    if (this.line !== line) return; // a listener has hung up
    line.begin();
    if (this.line !== line) return; // likewise
    if (line.resumed) this.conversation.playingChanged(); // what sounded may have run dry while there was no line
    else this.conversation.configure(this.settings);
    this.changed &&= line.resumed;
    this.sayWaiting();
    void this.inputs.attach(line).catch((error: unknown) => this.trouble(problemOf(error, "Opening the microphone")));
  }

  private get settings(): Settings {
    return settled(this.session, this.handsFree, this.conversation.tools.settings);
  }

  /** Settings of a conversation that goes on, by their names: the others stay as they are. */
  private change(named: Settings): void {
    if (this.configured) this.conversation.configure(picked({ tools: [], ...this.settings }, named));
    else this.changed = true;
  }

  /** The server, with a key for a new session. Throws a Problem. */
  private async locate(): Promise<Place> {
    if (typeof this.key === "function") this.secret = await keyOf(this.key);
    return this.place;
  }

  private ready(): void {
    if (this.broken) this.emit("problem", null, null); // that one is over; another may still hold
    this.broken = false;
    this.configured = true;
    if (this.changed) this.conversation.configure({ tools: [], ...this.settings });
    this.changed = false;
    this.connection.settled();
    this.sayWaiting();
    this.emit("change");
  }

  private lost(problem: Problem, retry_ms: number | null): void {
    this.configured = this.queued = false;
    this.floor.letGo();
    if (problem.code === "key") this.letGo();
    else if (retry_ms === null) this.end();
    else void this.inputs.attach(null);
    this.broken = true;
    this.trouble(problem, retry_ms);
    this.emit("change");
  }

  private hangUp(): void {
    this.connection.stop();
    this.resume.restore(null);
    this.configured = this.queued = false;
    this.floor.letGo();
    this.conversation.reset();
  }

  private sayWaiting(): void {
    if (!this.configured) return;
    for (const event of this.waiting.splice(0)) this.conversation.pass(event);
    if (this.sayings.empty) return;
    this.emit("pending", []);
    for (const saying of this.sayings.take()) this.conversation.say(saying);
  }

  /** Show what the camera sees as the user begins to speak; null: the turn has no name yet. */
  private look(item: string | null): void {
    const picture = this.inputs.camera?.still(STILL_CHARS);
    if (picture) this.conversation.show(picture, item);
  }

  private beginTurn(): void {
    this.conversation.beginTurn();
    this.look(null);
  }

  private trouble(problem: Problem, retry_ms: number | null = null): void {
    if (!this.listened("problem")) console.error(`${problem.name}: ${problem.message}`, problem.cause ?? "");
    this.emit("problem", problem, retry_ms);
  }
}
