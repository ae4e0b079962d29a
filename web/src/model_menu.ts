/** The server's models, the voices of the chosen one, and its instructions. */

import { fill } from "./choices_list";
import { element, made } from "./dom";
import { choices, choose } from "./memory";
import { languageName } from "./languages";
import type { Loaded, Problem, VoiceClient } from "./library";
import { VoiceList } from "./voice_list";

const name = element("model-name");
const models = element("models");
const instructions = element<HTMLTextAreaElement>("instructions");

const ABILITIES: Record<string, string> = { audio: "hears speech", image: "sees pictures", tools: "calls tools", speech: "speaks" };

export class ModelMenu {
  private model = "";
  private speaking: string | null = null; // the voice that answers
  private readonly voices: VoiceList;

  constructor(
    private readonly voice: VoiceClient,
    trouble: (problem: Problem) => void,
    private readonly changed: () => void,
  ) {
    this.voices = new VoiceList(voice, trouble);
    const { model, voice: chosen, instructions: told } = choices();
    if (model !== null) voice.model = model;
    if (chosen !== null) voice.useVoice(chosen);
    if (told !== null) voice.setInstructions((instructions.value = told));
    instructions.addEventListener("change", () => this.setInstructions(instructions.value.trim()));
  }

  learn(loaded: Loaded, speaking: string | null): void {
    this.model = loaded.model ?? this.model;
    this.speaking = speaking ?? this.speaking ?? choices().voice;
    this.voices.learn(loaded, this.speaking, (id) => this.setVoice(id));
    if (!this.voices.has(this.speaking)) this.speaking = this.voices.first; // the choice was another model's
    element("model-title").textContent = this.model || "Model";
    element("abilities").textContent = sentence(loaded);
    const { models: names = [] } = loaded;
    element("model-row").hidden = names.length < 2;
    fill(models, names.map((id) => ({ id, name: id })), this.model, (id) => this.setModel(id));
    this.show();
  }

  /** The name of the voice that answers. */
  get voiceName(): string {
    return this.voices.nameOf(this.speaking);
  }

  get voiceId(): string {
    return this.speaking ?? "default";
  }

  private show(): void {
    name.replaceChildren(this.model || "Model", made("span", this.voices.several ? ` · ${this.voiceName}` : "", "wide-only"));
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
}

/** "Hears speech, sees pictures and calls tools. Languages: English." */
function sentence({ abilities = [], languages = [] }: Loaded): string {
  const can = Object.entries(ABILITIES).flatMap(([ability, words]) => (abilities.includes(ability) ? [words] : []));
  if (can.length === 0) return "";
  const listed = new Intl.ListFormat("en", { type: "conjunction" }).format(can);
  const names = languages.map(languageName).join(", ");
  return `${listed.charAt(0).toUpperCase()}${listed.slice(1)}.${names && ` Languages: ${names}.`}`;
}
