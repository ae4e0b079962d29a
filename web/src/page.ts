/** The page: its parts, wired to a conversation. Knows no protocol, no sound. */

import "./style.css";
import { Captions, type Kept } from "./captions";
import { Composer } from "./composer";
import { Doctor } from "./doctor";
import { element } from "./dom";
import { Examples } from "./examples";
import { Log } from "./log";
import { choices, recalled, remember } from "./memory";
import { Menu } from "./menu";
import { Settings } from "./settings";
import { Stage } from "./stage";
import { Timing } from "./timing";
import { Problem, VoiceClient, type LineKind, type Loaded, type Ticket } from "./library";

const ROUTES: Record<LineKind, string> = { webrtc: "WebRTC", websocket: "WebSocket" };

const notice = element("notice");
const welcome = element("welcome");
const route = element("route");

const voice = new VoiceClient({ audio: element<HTMLAudioElement>("voice"), microphone: choices().microphone });
const captions = new Captions(element("captions"), element("scroll"));
const timing = new Timing();
const log = new Log();
const stage = new Stage(voice);
const settings = new Settings(voice, { mode: () => captions.leave(), trouble: (problem) => say(problem) });
const composer = new Composer(voice, () => (welcome.hidden = true), (problem) => say(problem));
const examples = new Examples((question) => composer.ask(question));
const menu = new Menu(captions, { clear, begin: beginAnew });
new Doctor(() => voice.place);

const BACK_MS = 15_000; // a session waits 20 s
const left = recalled("back") as { ticket: Ticket; talking: boolean; at_ms: number } | null;
const back = left !== null && Date.now() - left.at_ms < BACK_MS;
remember("back", null);

let lines = 0; // how many this page has had
let model = ""; // the one that is loaded

voice.on("change", () => show());
voice.on("spoke", (item) => {
  welcome.hidden = true;
  captions.begin(item, "user");
});
voice.on("text", (who, item, text, final) => {
  welcome.hidden = true;
  if (final && who === "user") captions.complete(item, who, text);
  else if (!final && who === "answer") captions.append(item, who, text); // the user's words so far come as "hearing"
  if (!voice.answering) captions.settle("answer"); // its last words are shown when they are heard, behind its end
});
voice.on("hearing", (item, text) => {
  welcome.hidden = true;
  captions.guess(item, text);
});
voice.on("answerDone", () => captions.settle("answer"));
voice.on("interrupted", (item) => captions.interrupted(item));
voice.on("cut", (item, heard) => (heard === null ? captions.interrupted(item) : captions.cut(item, heard)));
voice.on("firstSound", (figure) => timing.show(figure));
voice.on("event", (direction, event) => {
  log.add(direction, event);
  menu.note(event);
});
voice.on("session", ({ parley }) => parley && learn(parley, parley.voice ?? null));
voice.on("problem", say);
voice.on("queued", (position) => stage.queued(position));
voice.on("line", (_kind, fellBack, resumed) => {
  route.title = fellBack === null ? "" : `No call: ${fellBack.message}`;
  if (!resumed) captions.leave();
  if (!resumed && (lines++ > 0 || back) && !captions.empty) captions.divide("A new conversation begins");
  if (fellBack !== null) captions.divide(`Over a WebSocket: ${fellBack.message}`);
});
voice.on("picture", (picture, item) => captions.show(item, picture));

function show(): void {
  if (voice.state === "idle") captions.leave();
  if (!voice.answering) captions.settle("answer");
  stage.show();
  settings.show();
  examples.show(voice.state, voice.answering);
  const kind = voice.transportUsed;
  route.textContent = [model, kind && ROUTES[kind]].filter(Boolean).join(" · ");
  showPreview();
}

function showPreview(): void {
  const figure = element("preview");
  const preview = voice.inputs.camera?.preview ?? null;
  if (figure.querySelector("video") === preview) return;
  figure.querySelector("video")?.remove();
  if (preview !== null) figure.prepend(preview);
  figure.hidden = preview === null;
}

/** The server's description of its model. */
function learn(loaded: Loaded, speaking: string | null): void {
  model = loaded.model ?? model;
  settings.showVoices(loaded, speaking);
  examples.learn(loaded.examples);
  invite(loaded);
  stage.learn(loaded);
  const notes = element("notes");
  notes.textContent = (loaded.notes ?? []).join(" ");
  notes.hidden = notes.textContent === "";
  show();
}

/** Invite users to what this model can do. */
function invite({ examples = [], understands_speech: hears = true }: Loaded): void {
  element("invitation").textContent = !hears ? "Type anything." : examples.length > 0 ? "Say something." : "Ask anything.";
  welcome.classList.toggle("typed", !hears);
}

/** Empty pages; the conversation goes on. */
function clear(): void {
  captions.clear();
  welcome.hidden = false;
}

function beginAnew(): void {
  lines = 0;
  clear();
  say(null);
  voice.reconnect();
}

function say(problem: Problem | null, retry_ms: number | null = null): void {
  const again = retry_ms === null ? "" : ` Trying again in ${retry_ms / 1000} s.`;
  notice.querySelector("p")!.textContent = problem === null ? "" : problem.message + again;
  notice.hidden = problem === null;
  if (problem?.code === "key") settings.open();
}

element("dismiss").addEventListener("click", () => say(null));
for (const gesture of ["pointerdown", "keydown"]) {
  document.addEventListener(gesture, () => voice.wake(), { once: true, capture: true });
}
window.addEventListener("pagehide", () => {
  const { talking } = voice;
  const ticket = voice.leave();
  remember("captions", captions.kept());
  remember("back", ticket && { ticket, talking, at_ms: Date.now() });
  if (ticket === null) voice.end(); // else the session waits a while for the next load
});

const kept = recalled("captions") as Kept[] | null;
if (kept !== null && kept.length > 0) {
  welcome.hidden = true;
  captions.restore(kept);
  if (!back) captions.divide("The page was loaded anew: a new conversation begins");
}
if (back) voice.comeBack(left!.ticket, left!.talking);
show();
voice.loaded().then((loaded) => loaded && voice.state === "idle" && learn(loaded, null), () => undefined); // else a conversation tells
