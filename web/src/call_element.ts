/**
 * `<parley-call>`: a button to talk with a voice server, in one line of any page. Built as `call.js`.
 *
 *     <script type="module" src="https://…/call.js"></script><parley-call>Talk to us</parley-call>
 *
 * Knows no sound and no protocol: its `voice` is a VoiceClient, for tools and all else. One element of a page talks at a
 * time, and one that leaves the page hangs up.
 */

import { keyFrom, VoiceClient, type Code, type Eagerness, type Problem, type VoiceOptions, type VoiceState } from "./library";

export * from "./library";

const WORDS: Record<VoiceState, string> = {
  idle: "",
  connecting: "Connecting …",
  lost: "The connection is lost; trying again …",
  waiting: "The server is full: you are in line",
  ready: "The microphone is off",
  muted: "Muted",
  listening: "Listening",
  hearing: "I hear you",
  thinking: "Thinking …",
  speaking: "Speaking",
};

const STYLE = `
  :host { display: inline-grid; grid-template-columns: auto auto; justify-content: start; align-items: center; gap: 0.4em; font: inherit; max-width: 24em; }
  :host([hidden]) { display: none; }
  button { font: inherit; min-height: 2.75em; padding: 0.5em 1.2em; border: 0; border-radius: 2em; cursor: pointer; background: var(--parley-color, #2456d6); color: var(--parley-text, #fff); }
  button[part="mute"] { background: transparent; color: inherit; border: 1px solid currentColor; }
  button[aria-pressed="true"] { outline: 3px solid var(--parley-color, #2456d6); outline-offset: 2px; }
  button:focus-visible { outline: 3px solid currentColor; outline-offset: 2px; }
  p { grid-column: 1 / -1; margin: 0; min-height: 1.3em; overflow-wrap: anywhere; }
  [hidden] { display: none; }
`;

const SHELL = `
  <button part="button" type="button" aria-pressed="false"><slot>Talk</slot></button>
  <button part="mute" type="button" aria-pressed="false" hidden>Mute</button>
  <p part="state" role="status"></p>
  <p part="words" dir="auto" hidden></p>
  <p part="problem" role="alert" hidden></p>
`;

/** Where there is no page, as in a server that renders one, the module can be imported all the same. */
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement);

/** Without a microphone there is nobody to talk to. */
const NO_MICROPHONE: ReadonlySet<Code> = new Set(["permission", "no-device", "busy", "device", "insecure", "unsupported"]);

let talking: ParleyCall | null = null; // the element of this page that is in a conversation

export class ParleyCall extends Base {
  private client: VoiceClient | null = null;
  private answer = ""; // the words of the answer that is spoken

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.innerHTML = SHELL;
    const sheet = new CSSStyleSheet(); // a page's policy may forbid a style element
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.piece("button").addEventListener("click", () => this.toggle());
    this.piece("mute").addEventListener("click", () => this.voice.mute(!this.voice.muted));
  }

  /** The conversation behind the button: add tools and listen to its events before the first click, or at any time. */
  get voice(): VoiceClient {
    return (this.client ??= this.make());
  }

  disconnectedCallback(): void {
    queueMicrotask(() => this.isConnected || this.end()); // moving an element takes it away and puts it back
  }

  /** Begin to talk, or hang up. */
  private toggle(): void {
    try {
      if (this.voice.talking) return this.end();
      if (talking !== this) talking?.end();
      talking = this;
      this.voice.start();
    } catch (problem) {
      this.problem(problem as Problem);
    }
  }

  private end(): void {
    this.client?.end();
    if (talking === this) talking = null;
  }

  private make(): VoiceClient {
    const voice = new VoiceClient(this.options());
    voice.on("change", () => this.show());
    voice.on("problem", (problem) => {
      this.problem(problem);
      if (problem !== null && NO_MICROPHONE.has(problem.code) && !voice.talking) this.end();
    });
    voice.on("text", (who, _item, text, final) => {
      if (who === "answer") this.answered(text, final);
      else if (final) this.say(text);
    });
    voice.on("hearing", (_item, text) => this.say(text));
    return voice;
  }

  private options(): VoiceOptions {
    const text = (name: string) => this.getAttribute(name);
    const [server, keys] = [text("server"), text("key-from")];
    return {
      ...(server !== null && { server }),
      key: keys === null ? text("key") : keyFrom(new URL(keys, document.baseURI)),
      model: text("model"),
      voice: text("voice"),
      instructions: text("instructions"),
      eagerness: (text("eagerness") ?? "auto") as Eagerness,
      transport: (text("transport") ?? "auto") as NonNullable<VoiceOptions["transport"]>,
    };
  }

  private show(): void {
    const { state, talking, muted } = this.voice;
    this.dataset["state"] = state;
    this.piece("button").setAttribute("aria-pressed", String(talking));
    this.piece("mute").hidden = !talking;
    this.piece("mute").setAttribute("aria-pressed", String(muted));
    this.piece("state").textContent = WORDS[state];
  }

  /** The next words of an answer, or all of them. */
  private answered(text: string, final: boolean): void {
    this.say(final ? text : this.answer + text);
    this.answer = final ? "" : this.answer + text;
  }

  private say(text: string): void {
    this.piece("words").textContent = text;
    this.piece("words").hidden = text === "";
  }

  private problem(problem: Problem | null): void {
    this.piece("problem").textContent = problem?.message ?? "";
    this.piece("problem").hidden = problem === null;
  }

  private piece(name: string): HTMLElement {
    return this.shadowRoot!.querySelector<HTMLElement>(`[part="${name}"]`)!;
  }
}

declare global {
  interface HTMLElementTagNameMap {
    "parley-call": ParleyCall;
  }
}

if (globalThis.customElements !== undefined && customElements.get("parley-call") === undefined) customElements.define("parley-call", ParleyCall);
