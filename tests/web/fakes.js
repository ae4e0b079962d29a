// As much of a browser as a client's lines and loudspeaker need: sockets, calls and sound, which a test plays by hand.

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";

import { ParleyCall } from "../../web/src/call_element";
import { toBase64 } from "../../web/src/pcm";
import { VoiceClient } from "../../web/src/voice";

const SERVER = "http://127.0.0.1:8000";
export const SESSION = { session: { parley: { resume_token: "back" } } };
export const CREATED = { response: { id: "r", status: "in_progress" } };
export const SOUND = { item_id: "a", delta: toBase64(new Int16Array(2_400)) };

/** Until nothing is left to do but what a timer begins: promises, and the answers that they wait for. */
export async function settled() {
  for (let turns = 0; turns < 4; turns++) await turn();
}

/** A client in a fresh browser; `browser` has the ends of what it opens. */
export function opening(t, options = {}) {
  const browser = fresh(t);
  const voice = new VoiceClient({ server: SERVER, audio: browser.element, transport: "websocket", ...options });
  const problems = [];
  voice.on("problem", (problem) => problem && problems.push(problem.code));
  browser.leave = () => voice.end();
  return { voice, browser, problems };
}

/** A client whose session is there, over a socket. */
export async function talking(t, options = {}) {
  const { voice, browser, problems } = opening(t, options);
  voice.connect();
  await settled();
  await begun(browser.socket);
  return { voice, browser, problems };
}

export async function begun(socket) {
  await socket.say("session.created", SESSION);
  await socket.say("session.updated", SESSION);
  socket.types();
}

/** The line is cut and found again: the next socket, of which the server has said nothing yet. */
export async function cut(t, browser) {
  await browser.socket.cut();
  for (const hurry of browser.online) hurry();
  await settled();
  assert.equal(browser.socket.url.searchParams.get("resume"), "back");
  return browser.socket;
}

/** An element in a fresh browser; `part` has its pieces. */
export function calling(t) {
  const browser = fresh(t);
  const pieces = new Map();
  const part = (name) => pieces.get(name) ?? pieces.set(name, new Piece()).get(name);
  const own = {
    attachShadow() {
      return (this.shadowRoot = { querySelector: (selector) => part(/"(.+)"/.exec(selector)[1]) });
    },
    getAttribute: (name) => ({ server: SERVER, transport: "websocket" })[name] ?? null,
    dataset: {},
  };
  Object.assign(ParleyCall.prototype, own); // in the place of HTMLElement, which Node has not
  const element = new ParleyCall();
  browser.leave = () => element.voice.end();
  return { element, browser, part };
}

function fresh(t) {
  const browser = new Browser();
  const before = new Map(Object.keys(browser.globals).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
  for (const [name, value] of Object.entries(browser.globals)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  t.after(() => {
    browser.leave();
    for (const [name, was] of before) was ? Object.defineProperty(globalThis, name, was) : delete globalThis[name];
  });
  return browser;
}

class Browser {
  sockets = [];
  calls = [];
  contexts = [];
  asked = []; // for devices, where the user has not answered yet
  requests = [];
  /** Whether a worklet loads. */
  worklets = Promise.resolve();
  element = { srcObject: null, muted: false, play: async () => {} };
  online = new Set();
  /** Whether the user has: else no context starts. */
  clicked = true;

  get globals() {
    const browser = this;
    const window = {
      isSecureContext: true,
      RTCPeerConnection: true,
      setTimeout: (act, ms) => setTimeout(act, ms),
      setInterval: (act, ms) => setInterval(act, ms),
      addEventListener: (_, listener) => browser.online.add(listener),
      removeEventListener: (_, listener) => browser.online.delete(listener),
    };
    return {
      window,
      location: new URL("http://127.0.0.1:8000/"),
      navigator: { mediaDevices: { getUserMedia: () => new Promise((allow, refuse) => browser.asked.push({ allow, refuse })) } },
      document: { createElement: () => ({ videoWidth: 0, play: async () => {} }) },
      fetch: async (url, init) => browser.answer(new URL(url).pathname, init),
      Audio: class {
        play = async () => {};
      },
      CSSStyleSheet: class {
        replaceSync() {}
      },
      MediaStream: class {
        constructor(tracks) {
          this.tracks = tracks;
        }
      },
      WebSocket: class extends Socket {
        static OPEN = 1;
        constructor(url) {
          super(url);
          browser.sockets.push(this);
        }
      },
      RTCPeerConnection: class extends Peer {
        constructor() {
          super();
          browser.calls.push(this);
        }
      },
      AudioContext: class extends Context {
        constructor() {
          super();
          browser.contexts.push(this);
          this.mayStart = browser.clicked;
          this.audioWorklet = { addModule: () => browser.worklets };
        }
      },
      AudioWorkletNode: Node,
    };
  }

  get socket() {
    return this.sockets.at(-1);
  }

  get call() {
    return this.calls.at(-1);
  }

  /** The loudspeaker's worklet of a socket. */
  get speaker() {
    return this.contexts.map(({ speaker }) => speaker).findLast(Boolean);
  }

  /** The user allows the device that was asked for first. Its track. */
  async allow() {
    const track = new Track();
    this.asked.shift().allow({ getAudioTracks: () => [track], getVideoTracks: () => [track] });
    await settled();
    return track;
  }

  answer(path) {
    this.requests.push(path);
    if (path.endsWith("ice-servers")) return Response.json({ ice_servers: [] });
    return new Response("an answer", { headers: { Location: `${path}/call-1` } });
  }
}

/** A piece of an element: its attributes, and a user who clicks it. */
class Piece {
  attributes = {};

  addEventListener(_, act) {
    this.click = async () => {
      act();
      await settled();
    };
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }
}

/** A microphone's, or a camera's. */
class Track {
  readyState = "live";

  addEventListener(_, lost) {
    this.lost = lost;
  }

  getSettings() {
    return {};
  }

  stop() {
    this.readyState = "ended";
  }
}

/** The server's end of a socket. */
class Socket {
  readyState = 1;
  bufferedAmount = 0;
  sent = [];

  constructor(url) {
    this.url = new URL(url);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.readyState = 3;
  }

  async say(type, fields = {}) {
    this.onmessage?.({ data: JSON.stringify({ type, ...fields }) });
    await settled();
  }

  async cut() {
    this.readyState = 3;
    this.onclose?.({ reason: "" });
    await settled();
  }

  /** What the client sent since the last look. */
  types() {
    return this.sent.splice(0).map(({ type }) => type);
  }
}

/** The server's end of a call. */
class Peer {
  connectionState = "new";
  localDescription = { sdp: "an offer" };
  channel = Object.assign(new Socket("http://call"), { readyState: "connecting" });
  takes = async () => {}; // a track

  createDataChannel() {
    return this.channel;
  }

  addTransceiver(kind) {
    const sender = { replaceTrack: () => this.takes() };
    return { sender, receiver: { track: { kind }, getSynchronizationSources: () => [] } };
  }

  async setLocalDescription() {}

  async setRemoteDescription() {}

  close() {
    this.connectionState = "closed";
  }

  async open() {
    this.channel.readyState = "open";
    this.channel.onopen();
    await settled();
  }

  async fail() {
    this.connectionState = "failed";
    this.onconnectionstatechange?.();
    await settled();
  }
}

class Context {
  state = "running";
  currentTime = 0;
  outputLatency = 0;
  speaker = null;
  waiting = []; // to start

  createMediaStreamDestination() {
    return { stream: { loudspeaker: this } };
  }

  createMediaStreamSource() {
    return new Source(this);
  }

  createAnalyser() {
    return { getFloatTimeDomainData() {} };
  }

  resume() {
    return this.mayStart ? Promise.resolve() : new Promise((_, refuse) => this.waiting.push(refuse));
  }

  async close() {
    this.state = "closed";
    for (const refuse of this.waiting) refuse(new DOMException("The context is going away.", "InvalidStateError"));
  }
}

class Source {
  constructor(context) {
    this.context = context;
  }

  connect(to) {
    return to;
  }

  disconnect() {}
}

/** A worklet: of the loudspeaker's, a test says how much of what was posted has been played. */
class Node extends Source {
  orders = [];
  port = { postMessage: (order) => this.take(order), close() {} };

  constructor(context, name) {
    super(context);
    if (name === "playback") context.speaker = this;
  }

  take(order) {
    this.orders.push(order.kind);
    if (order.kind === "samples") this.item = order.item;
    if (order.kind === "flush") this.report({ kind: "flushed", position: this.item ? { item: this.item, samples: 2_400 } : null });
  }

  /** All of it was played. */
  async drain() {
    this.report({ kind: "position", position: { item: this.item, samples: 2_400 }, waiting: 0, time_s: 0 });
    await settled();
  }

  report(what) {
    const taken = this.orders.filter((kind) => kind === "samples").length;
    queueMicrotask(() => this.port.onmessage({ data: { ...what, taken } }));
  }
}
