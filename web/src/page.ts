/** The page: its elements, wired to a call. Knows no protocol, no sound. */

import "./style.css";
import { Call, type CallState } from "./call";
import { Captions } from "./captions";
import { Timing } from "./timing";

const WORDS: Record<CallState, string> = {
  connecting: "Connecting",
  ready: "Ready",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
  error: "No server",
};

const state = element<HTMLElement>("state");
const notice = element<HTMLElement>("notice");
const welcome = element<HTMLElement>("welcome");
const question = element<HTMLInputElement>("question");
const talkButton = element<HTMLButtonElement>("talk");
const stopButton = element<HTMLButtonElement>("stop");
const captions = new Captions(element("captions"));
const timing = new Timing(element("timing"), element("figure"), element("bars"));

const call = new Call(serverUrl(), element("voice"), {
  changed: show,
  userSpoke(item) {
    welcome.hidden = true;
    captions.begin(item, "user");
  },
  userText(item, text, final) {
    if (final) captions.complete(item, "user", text);
    else captions.append(item, "user", text);
  },
  answerText: (item, delta) => captions.append(item, "parley", delta),
  interrupted: (item) => captions.interrupted(item),
  answerDone: () => captions.settle("parley"),
  firstSound: (figure) => timing.show(figure),
  level: (peak) => talkButton.style.setProperty("--level", Math.min(1, peak * 2).toFixed(2)),
  problem(message) {
    notice.textContent = message ?? "";
    notice.hidden = message === null;
  },
  reconnected: () => captions.divide("The connection was lost: a new conversation begins"),
});

function show(): void {
  state.textContent = WORDS[call.state];
  state.dataset["state"] = call.state;
  talkButton.setAttribute("aria-pressed", String(call.talking));
  talkButton.querySelector("span")!.textContent = call.talking ? "End talk" : "Talk";
  stopButton.disabled = !call.answering;
}

function ask(text: string): void {
  if (text.trim() === "") return;
  const item = call.ask(text.trim());
  if (item === null) return; // the notice says that the server is away; the text stays in its box
  welcome.hidden = true;
  captions.complete(item, "user", text.trim());
  question.value = "";
}

function toggleTalk(): void {
  if (call.talking) call.hush();
  else void call.talk();
}

function escape(): void {
  if (call.answering) call.stop();
  else if (call.talking) call.hush();
}

element<HTMLFormElement>("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(question.value);
});
for (const example of welcome.querySelectorAll("button")) {
  example.addEventListener("click", () => ask(example.textContent ?? ""));
}
talkButton.addEventListener("click", toggleTalk);
stopButton.addEventListener("click", () => {
  call.stop();
  question.focus(); // the button is disabled now, and would lose the keyboard
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") escape();
});
for (const gesture of ["pointerdown", "keydown"]) {
  document.addEventListener(gesture, () => call.wake(), { once: true, capture: true });
}

/** The Realtime endpoint beside this page, whatever the path it is served under. */
function serverUrl(): string {
  const url = new URL("v1/realtime?model=nano", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

call.connect();
