/** The page: its parts, wired to a conversation. Knows no protocol, no sound. */

import "./style.css";
import { Answers } from "./answers";
import { stayAwake } from "./awake";
import { Captions, type Kept } from "./captions";
import { Composer } from "./composer";
import { DeviceMenus } from "./device_menus";
import { element } from "./dom";
import { EventsPanel } from "./events_panel";
import { FactsPanel } from "./facts_panel";
import { glide } from "./glide";
import { startHelp } from "./help";
import { Hero, type Look } from "./hero";
import { HostedCalls } from "./hosted_calls";
import { Inspector } from "./inspector";
import { KeyDialog } from "./key_dialog";
import { Problem, VoiceClient, type Loaded, type Ticket } from "./library";
import { choices, recalled, remember } from "./memory";
import { Menu } from "./menu";
import { ModelMenu } from "./model_menu";
import { PageTools } from "./page_tools";
import { Pending } from "./pending";
import { offerPhone, startPhone } from "./phone";
import { placePopovers } from "./popovers";
import { SessionPanel } from "./session_panel";
import { Settings } from "./settings";
import { startShortcuts } from "./shortcuts";
import { Stage } from "./stage";
import { startTheme } from "./theme";
import { Timing } from "./timing";
import { ToolCards } from "./tool_cards";
import { heardOf } from "./transcript";
import { Trouble } from "./trouble";

startTheme();
placePopovers();

const audio = element<HTMLAudioElement>("voice");
const voice = new VoiceClient({ audio, microphone: choices().microphone });
const answers = new Answers((item) => heardOf(captions.said().find((one) => one.item === item)!));
const captions = new Captions(element("captions"), element("scroll"), (item) => answers.footer(item));
const pending = new Pending(() => show());
const cards = new ToolCards((card) => captions.insert(card));
const hosted = new HostedCalls((call) => cards.show(call));
const timing = new Timing();
const events = new EventsPanel();
const stage = new Stage(voice);
const trouble = new Trouble();
const keys = new KeyDialog(voice, (talk) => {
  if (talk) voice.start();
  else voice.connect();
  lookUp();
});
const devices = new DeviceMenus(voice, { mode: () => captions.leave(), trouble: say });
const model = new ModelMenu(voice, say, () => {
  known = {};
  voice.reconnect();
  lookUp();
});
const tools = new PageTools(voice, audio, (text) => captions.divide(text), choices().pageTools);
const session = new SessionPanel(voice, () => answers.sounds, () => ({ id: model.voiceId, name: model.voiceName }));
const facts = new FactsPanel(voice);
const composer = new Composer(voice, say);
const hero = new Hero((question) => composer.ask(question));
new Menu(captions, answers, { clear, begin: beginAnew });
new Settings(voice, (wanted) => tools.use(wanted));
new Inspector((panel) => {
  if (panel === "panel-events") events.show();
  if (panel === "panel-session") void facts.show();
});
startShortcuts();
startHelp();
startPhone();

const BACK_MS = 15_000; // a session waits 20 s
const left = recalled("back") as { ticket: Ticket; talking: boolean; at_ms: number } | null;
const back = left !== null && Date.now() - left.at_ms < BACK_MS;
remember("back", null);

let lines = 0; // how many this page has had
let known: Loaded = {}; // of the model
let talked = false; // the microphone was wanted while the page was connected, or connecting

voice.on("change", show);
voice.on("spoke", (item) => {
  answers.hush();
  captions.begin(item, "user");
  show();
});
voice.on("text", (who, item, text, final) => {
  if (hosted.isWaitLine(item) && cards.say(item, text, final)) return;
  if (final && who === "user") captions.complete(item, who, text);
  else if (final) captions.finish(item);
  else if (who === "answer") captions.append(item, text); // the user's words so far come as "hearing"
  if (!voice.answering) captions.settle("answer"); // its last words are shown when they are heard, after its end
  showLook(); // a word changes nothing else
});
voice.on("coming", (item, text) => hosted.isWaitLine(item) || captions.coming(item, text));
voice.on("pending", (texts) => pending.show(texts));
voice.on("hearing", (item, text) => captions.guess(item, text));
voice.on("answerDone", () => captions.settle("answer"));
voice.on("interrupted", (item) => captions.interrupted(item));
voice.on("cut", (item, heard) => (heard === null ? captions.interrupted(item) : captions.cut(item, heard)));
voice.on("firstSound", (figure) => {
  timing.show(figure);
  answers.time(figure.heard_ms);
});
voice.on("tool", (call) => cards.show(call));
voice.on("event", (direction, event) => {
  events.add(direction, event);
  answers.note(event);
  hosted.note(event);
  facts.note(event);
  session.note(direction, event);
});
voice.on("session", ({ parley }) => parley && learn(parley, parley.voice ?? null));
voice.on("problem", (problem, retry_ms) => {
  const refused = problem?.code === "permission"; // the camera's is shown by `devices`
  stage.block(refused);
  say(problem, retry_ms, refused && voice.handsFree ? () => voice.start() : undefined);
});
voice.on("queued", (position) => stage.queued(position));
voice.on("line", (_kind, fellBack, resumed) => {
  if (known.abilities === undefined) lookUp(); // the server was away, or had no key, when the page was loaded
  if (!resumed) captions.leave();
  if (!resumed && (lines++ > 0 || back) && !captions.empty) captions.divide("A new conversation begins");
  if (fellBack !== null) captions.divide(`Over a WebSocket: ${fellBack.message}`);
});
voice.on("picture", (picture, item) => captions.show(item, picture));

function show(): void {
  if (voice.state === "idle") captions.leave();
  else talked = voice.talking;
  if (!voice.answering) captions.settle("answer");
  showLook();
  stage.show();
  devices.show();
  session.show();
  stayAwake(voice.state, voice.talking, () => voice.stop());
  showPreview();
}

function showLook(): void {
  const look = lookNow();
  if (document.body.dataset["look"] !== look) {
    glide(element("orb"), () => (document.body.dataset["look"] = look));
    captions.follow();
  }
  hero.show(look);
}

/** A welcome while nothing happened, the orb alone in a call without words, and then the script. */
function lookNow(): Look {
  if (!captions.empty || !pending.empty) return "script";
  return voice.state === "idle" ? "hero" : "open";
}

function showPreview(): void {
  const figure = element("preview");
  const preview = voice.inputs.camera?.preview ?? null;
  if (figure.querySelector("video") === preview) return;
  figure.querySelector("video")?.remove();
  if (preview !== null) figure.prepend(preview);
  figure.hidden = preview === null;
}

/** The server's description of its model. A session's has less than that of the list of models. */
function learn(told: Loaded, speaking: string | null): void {
  const loaded = (known = { ...known, ...told });
  model.learn(loaded, speaking);
  hero.learn(loaded);
  stage.learn(loaded);
  tools.learn(loaded);
  devices.learn(loaded);
  composer.learn(loaded);
  captions.english = loaded.languages?.join() === "en";
  session.learn(loaded);
  facts.learn(loaded);
  show();
}

/** The list of models has abilities and languages, which no session has; of all else the session knows better. */
function lookUp(): void {
  voice.loaded().then(
    (loaded) => loaded && learn({ ...loaded, ...known }, null),
    () => undefined, // the conversation names the problem
  );
  offerPhone(voice.place).catch(() => undefined);
}

/** Empty pages; the conversation goes on. */
function clear(): void {
  captions.clear();
  answers.clear();
  show();
}

function beginAnew(): void {
  lines = 0;
  clear();
  say(null);
  voice.reconnect();
}

function say(problem: Problem | null, retry_ms: number | null = null, again = retry_ms === null ? null : () => voice.retry()): void {
  trouble.show(problem, retry_ms, again);
  if (problem?.code === "key") keys.ask(problem.message, talked);
}

for (const gesture of ["pointerdown", "keydown"]) {
  document.addEventListener(gesture, () => voice.wake(), { once: true, capture: true });
}
window.addEventListener("pagehide", () => {
  const { talking } = voice;
  const ticket = voice.leave();
  remember("captions", captions.kept());
  remember("unsent", voice.sayings.texts);
  remember("back", ticket && { ticket, talking, at_ms: Date.now() });
  if (ticket === null) voice.end(); // else the session waits a while for the next load
});

const kept = recalled("captions") as Kept[] | null;
if (kept !== null && kept.length > 0) {
  captions.restore(kept);
  if (!back) captions.divide("The page was reloaded: a new conversation begins");
}
if (back) voice.comeBack(left!.ticket, left!.talking);
for (const text of (recalled("unsent") as string[] | null) ?? []) voice.ask(text);
remember("unsent", null);
show();
lookUp();
