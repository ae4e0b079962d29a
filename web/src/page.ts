/** The page: its parts, wired to a conversation. Knows no protocol, no sound. */

import "./style.css";
import { Captions, type Kept } from "./captions";
import { Composer } from "./composer";
import { Doctor } from "./doctor";
import { draw, element } from "./dom";
import { Log } from "./log";
import { choices, recalled, remember } from "./memory";
import { Settings } from "./settings";
import { Stage } from "./stage";
import { Timing } from "./timing";
import { Problem, VoiceClient, type LineKind, type Ticket } from "./library";

const ROUTES: Record<LineKind, string> = { webrtc: "WebRTC", websocket: "WebSocket" };

const notice = element("notice");
const welcome = element("welcome");
const route = element("route");
const sight = element("sight");

const voice = new VoiceClient({ audio: element<HTMLAudioElement>("voice"), microphone: choices().microphone });
const captions = new Captions(element("captions"));
const timing = new Timing();
const log = new Log();
const stage = new Stage(voice);
const settings = new Settings(voice, (problem) => say(problem));
const composer = new Composer(voice, () => (welcome.hidden = true), (problem) => say(problem));
new Doctor(() => voice.place);

const BACK_MS = 15_000; // a session waits 20 s
const left = recalled("back") as { ticket: Ticket; talking: boolean; at_ms: number } | null;
const back = left !== null && Date.now() - left.at_ms < BACK_MS;
remember("back", null);

let lines = 0; // how many this page has had

voice.on("change", () => show());
voice.on("spoke", (item) => {
  welcome.hidden = true;
  captions.begin(item, "user");
});
voice.on("text", (who, item, text, final) => {
  welcome.hidden = true;
  if (final) captions.complete(item, who, text);
  else captions.append(item, who, text);
});
voice.on("answerDone", () => captions.settle("answer"));
voice.on("interrupted", (item) => captions.interrupted(item));
voice.on("cut", (item, heard) => (heard === null ? captions.interrupted(item) : captions.cut(item, heard)));
voice.on("firstSound", (figure) => timing.show(figure));
voice.on("event", (direction, event) => log.add(direction, event));
voice.on("session", (session) => settings.showVoices(session));
voice.on("problem", say);
voice.on("queued", (position) => stage.queued(position));
voice.on("line", (kind, fellBack, resumed) => {
  route.textContent = ROUTES[kind];
  route.title = fellBack === null ? "" : `No call: ${fellBack.message}`;
  if (!resumed && (lines++ > 0 || back) && !captions.empty) captions.divide("A new conversation begins");
  if (fellBack !== null) captions.divide(`Over a WebSocket: ${fellBack.message}`);
});
voice.on("picture", (picture) => {
  sight.hidden = element("seen").hidden = false;
  void draw(picture, element("seen").querySelector("canvas")!);
});

function show(): void {
  stage.show();
  settings.show();
  if (voice.transportUsed === null) route.textContent = "";
  showPreview();
}

function showPreview(): void {
  const figure = element("preview");
  const preview = voice.inputs.camera?.preview ?? null;
  figure.querySelector("video")?.remove();
  if (preview !== null) figure.prepend(preview);
  figure.hidden = preview === null;
  if (preview !== null) sight.hidden = false;
  else if (element("seen").hidden) sight.hidden = true;
}

function say(problem: Problem | null, retry_ms: number | null = null): void {
  const again = retry_ms === null ? "" : ` Trying again in ${retry_ms / 1000} s.`;
  notice.querySelector("p")!.textContent = problem === null ? "" : problem.message + again;
  notice.hidden = problem === null;
  if (problem?.code === "key") settings.open();
}

for (const example of welcome.querySelectorAll("button")) {
  example.addEventListener("click", () => composer.ask(example.textContent ?? ""));
}
element("dismiss").addEventListener("click", () => say(null));
for (const gesture of ["pointerdown", "keydown"]) {
  document.addEventListener(gesture, () => voice.wake(), { once: true, capture: true });
}
window.addEventListener("pagehide", () => {
  const { ticket, talking } = voice;
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
