/** The session as the inspector shows it, with the code that does the same and the download. */

import { copyFrom, save } from "./clipboard";
import { element, fillChips } from "./dom";
import type { AnyEvent, Direction } from "./event_summary";
import { choices } from "./memory";
import type { LineKind, Loaded, Session, VoiceClient } from "./library";
import { Recording } from "./recording";
import { LANGUAGES, snippet, type Language } from "./snippets";
import { wavOf } from "./transcript";

const ROUTES: Record<LineKind, string> = { webrtc: "WebRTC", websocket: "WebSocket" };

export class SessionPanel {
  private readonly recording = new Recording();
  private language: Language = "Python";
  private model = "";
  private id = ""; // of the session

  /** `sounds` are the pieces of each answer that is kept. */
  constructor(
    private readonly voice: VoiceClient,
    sounds: () => readonly (readonly string[])[],
    private readonly speaking: () => { readonly id: string; readonly name: string },
  ) {
    const copy = element("copy-snippet");
    copy.addEventListener("click", () => void copyFrom(copy, element("snippet").textContent ?? ""));
    const copyId = element("copy-session");
    copyId.addEventListener("click", () => void copyFrom(copyId, this.id));
    const names = LANGUAGES.map((one) => [one, one] as const);
    fillChips(element("languages"), names, (language) => {
      this.language = language;
      this.show();
    });
    element("download-session").addEventListener("click", () => {
      save(new Blob([this.recording.text], { type: "application/jsonl" }), "session.jsonl");
      const pieces = sounds().flat();
      if (pieces.length > 0) save(wavOf(pieces), "session.wav");
    });
  }

  note(direction: Direction, event: AnyEvent): void {
    this.recording.add(direction, event);
    if (event.type === "session.created" || event.type === "session.updated") this.told(event["session"] as Session & { id?: string });
  }

  learn({ model = this.model }: Loaded): void {
    this.model = model;
    this.show();
  }

  show(): void {
    const kind = this.voice.transportUsed;
    const { id, name } = this.speaking();
    element("route").textContent = kind === null ? "None" : ROUTES[kind];
    element("session-model").textContent = this.model || "–";
    element("session-voice").textContent = name;
    element("session-microphone").textContent = this.voice.inputs.microphone === null ? "Off" : this.voice.muted ? "Muted" : "On";
    const { server } = this.voice.place;
    const setup = { server: server.href, model: this.model || "default", voice: id, instructions: choices().instructions ?? "" };
    const code = snippet(this.language, setup);
    if (element("snippet").textContent !== code) element("snippet").textContent = code; // else a selection in it would be lost
  }

  private told(session: Session & { id?: string }): void {
    const turns = session.audio?.input?.turn_detection as object | null | undefined;
    this.id = session.id ?? "";
    element("session-id").title = this.id;
    element("session-id").textContent = shortened(this.id) || "–";
    element("copy-session").hidden = this.id === "";
    element("session-turns").textContent = turns ? "Automatic" : "Push to talk";
  }
}

/** A long id without its middle. */
function shortened(id: string): string {
  return id.length <= 18 ? id : `${id.slice(0, 9)}…${id.slice(-6)}`;
}
