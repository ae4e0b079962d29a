/** The voices of the model: one chosen, each with what is known about it and a preview. */

import { fill, type Choice } from "./choices_list";
import { button, element, icon, setIcon } from "./dom";
import { Problem, type Loaded, type VoiceClient } from "./library";
import { languageName } from "./languages";
import { OneSound } from "./one_sound";
import { request } from "./request";

const SENTENCES: Readonly<Record<string, string>> = {
  de: "Hallo! So klinge ich.",
  en: "Hello! This is how I sound.",
  es: "¡Hola! Así sueno yo.",
  fr: "Bonjour ! Voici ma voix.",
  it: "Ciao! Questa è la mia voce.",
  ja: "こんにちは。これが私の声です。",
  pt: "Olá! Esta é a minha voz.",
  zh: "你好，这是我的声音。",
};

interface Voice extends Choice {
  readonly language: string;
}

export class VoiceList {
  private voices: readonly Voice[] = [];
  private model = ""; // that speaks the previews
  private readonly sound = new OneSound();
  private sounding: HTMLElement | null = null; // the key of the preview that plays

  constructor(
    private readonly client: VoiceClient,
    private readonly trouble: (problem: Problem) => void,
  ) {}

  learn({ model = this.model, voices: ids = [], voice_details }: Loaded, speaking: string | null, choose: (id: string) => void): void {
    this.model = model;
    this.voices = (voice_details ?? ids.map((id) => ({ id, name: id, language: "" }))).map(described);
    element("voice-row").hidden = this.voices.length === 0;
    fill(element("voices"), this.voices, speaking ?? "", choose, (voice) => this.preview(voice as Voice));
  }

  get first(): string | null {
    return this.voices[0]?.id ?? null;
  }

  /** Whether it is one of the voices. True while none are known. */
  has(id: string | null): boolean {
    return this.voices.length === 0 || this.voices.some((voice) => voice.id === id);
  }

  get several(): boolean {
    return this.voices.length > 1;
  }

  nameOf(id: string | null): string {
    return this.voices.find((voice) => voice.id === id)?.name ?? "–";
  }

  private preview(voice: Voice): HTMLElement {
    const key = button("", () => void this.play(voice, key), "quiet icon-only");
    key.append(icon("play"));
    name(key, `Hear ${voice.name}`);
    return key;
  }

  private async play(voice: Voice, key: HTMLElement): Promise<void> {
    if (this.sounding === key) return this.sound.stop();
    const over = () => {
      this.sounding = null;
      setIcon(key, "play");
      name(key, `Hear ${voice.name}`);
    };
    const playing = this.sound.play(async (context) => context.decodeAudioData(await this.spoken(voice)), over);
    this.sounding = key;
    setIcon(key, "stop");
    name(key, `Stop ${voice.name}`);
    await playing.catch((error: unknown) => this.trouble(new Problem("sound", `${voice.name} could not be played: try again.`, error)));
  }

  private async spoken({ id, language }: Voice): Promise<ArrayBuffer> {
    const input = SENTENCES[language.split("-")[0]!] ?? SENTENCES["en"];
    const response = await request(this.client, "v1/audio/speech", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: this.model, input, voice: id, response_format: "wav" }),
    });
    return response.arrayBuffer();
  }
}

function name(key: HTMLElement, label: string): void {
  key.title = label;
  key.setAttribute("aria-label", label);
}

/** "Sally, a woman" in "en-US" is Sally: Woman · American English. */
function described({ id, name, language }: { id: string; name: string; language: string }): Voice {
  const [title = id, ...rest] = name.split(", ");
  const kind = rest.join(", ").replace(/^an? /, "");
  const about = [kind, language && languageName(language)].filter(Boolean).join(" · ");
  return { id, name: title, language, note: about.charAt(0).toUpperCase() + about.slice(1) };
}
