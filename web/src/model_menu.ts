/** The server's models, the voices of the chosen one, each with a preview, and the model's instructions. */

import { fill, type Choice } from "./choices_list";
import { button, element, icon, made } from "./dom";
import { choices, choose } from "./memory";
import { Problem, type Loaded, type VoiceClient } from "./library";
import { OneSound } from "./one_sound";

const name = element("model-name");
const models = element("models");
const voices = element("voices");
const instructions = element<HTMLTextAreaElement>("instructions");

const ABILITIES: Record<string, string> = { audio: "hears speech", image: "sees pictures", tools: "calls tools", speech: "speaks" };

export class ModelMenu {
  private model = "";
  private choices: readonly Choice[] = [];
  private speaking: string | null = null; // the voice that answers
  private readonly sound = new OneSound();

  constructor(
    private readonly voice: VoiceClient,
    private readonly trouble: (problem: Problem) => void,
    private readonly changed: () => void,
  ) {
    const { model, voice: chosen, instructions: told } = choices();
    if (model !== null) voice.model = model;
    if (chosen !== null) voice.useVoice(chosen);
    if (told !== null) voice.setInstructions((instructions.value = told));
    instructions.addEventListener("change", () => this.setInstructions(instructions.value.trim()));
  }

  learn(loaded: Loaded, speaking: string | null): void {
    const { voices: ids = [], voice_details = ids.map((id) => ({ id, name: id, language: "" })) } = loaded;
    this.model = loaded.model ?? this.model;
    this.choices = voice_details.map(({ id, name, language }) => ({ id, name: named(name, language) }));
    this.speaking = speaking ?? this.speaking ?? this.chosen ?? this.choices[0]?.id ?? null;
    element("model-title").textContent = this.model || "Model";
    element("abilities").textContent = sentence(loaded);
    const { models: names = [] } = loaded;
    element("model-row").hidden = names.length < 2;
    fill(models, names.map((id) => ({ id, name: id })), this.model, (id) => this.setModel(id));
    element("voice-row").hidden = this.choices.length === 0;
    fill(voices, this.choices, this.speaking ?? "", (id) => this.setVoice(id), (choice) => this.preview(choice));
    this.show();
  }

  /** The name of the voice that answers. */
  get voiceName(): string {
    return this.choices.find(({ id }) => id === this.speaking)?.name ?? "–";
  }

  get voiceId(): string {
    return this.speaking ?? "default";
  }

  private show(): void {
    const voice = this.choices.length > 1 ? ` · ${this.voiceName.split(",")[0]}` : "";
    name.replaceChildren(this.model || "Model", made("span", voice, "wide-only"));
  }

  /** The voice that the user has chosen once, if the model has it. */
  private get chosen(): string | undefined {
    const { voice } = choices();
    return this.choices.find(({ id }) => id === voice)?.id;
  }

  private setModel(id: string): void {
    choose({ model: id });
    this.voice.model = id;
    this.speaking = null; // the other model has voices of its own
    this.changed();
  }

  private setVoice(id: string): void {
    choose({ voice: id });
    this.voice.useVoice(id);
    this.speaking = id;
    this.show();
  }

  private setInstructions(told: string): void {
    choose({ instructions: told });
    this.voice.setInstructions(told);
  }

  private preview({ id, name }: Choice): HTMLElement {
    const play = button("", () => void this.play(id, name), "round");
    play.setAttribute("aria-label", `Hear ${name}`);
    play.append(icon("play"));
    return play;
  }

  private async play(voice: string, name: string): Promise<void> {
    try {
      await this.sound.play(async (context) => context.decodeAudioData(await this.fetchPreview(voice)));
    } catch (error) {
      this.trouble(new Problem("sound", `${name} could not be played: try again.`, error));
    }
  }

  private async fetchPreview(voice: string): Promise<ArrayBuffer> {
    const { server, key } = this.voice.place;
    const response = await fetch(new URL("v1/audio/speech", server), {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key !== null && { Authorization: `Bearer ${key}` }) },
      body: JSON.stringify({ model: this.model, input: "Hello. This is how I sound.", voice, response_format: "wav" }),
    });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    return response.arrayBuffer();
  }
}

/** "Hears speech, sees pictures and calls tools. Languages: English." */
function sentence({ abilities = [], languages = [] }: Loaded): string {
  const can = Object.entries(ABILITIES).flatMap(([ability, words]) => (abilities.includes(ability) ? [words] : []));
  if (can.length === 0) return "";
  const listed = new Intl.ListFormat("en", { type: "conjunction" }).format(can);
  const names = languages.map(languageName).join(", ");
  return `${listed.charAt(0).toUpperCase()}${listed.slice(1)}.${names && ` Languages: ${names}.`}`;
}

/** A voice's name and, in the browser's words, its language. */
function named(name: string, language: string): string {
  return language === "" ? name : `${name}, ${languageName(language)}`;
}

function languageName(tag: string): string {
  try {
    return new Intl.DisplayNames(undefined, { type: "language" }).of(tag) ?? tag;
  } catch {
    return tag; // not one that the browser knows
  }
}
