/** The line to type in, and the picture that goes with it: chosen, pasted or dropped. */

import { byTouch, draw, element } from "./dom";
import { Problem, problemOf, type Loaded, type VoiceClient } from "./library";

const question = element<HTMLInputElement>("question");
const attached = element("attached");
const file = element<HTMLInputElement>("file");

export class Composer {
  private picture: string | null = null;
  private sees = true;

  constructor(
    private readonly voice: VoiceClient,
    private readonly trouble: (problem: Problem) => void,
  ) {
    element("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(question.value);
    });
    element("picture").addEventListener("click", () => file.click());
    element("detach").addEventListener("click", () => this.attach(null));
    file.addEventListener("change", () => void this.take(file.files?.[0]));
    document.addEventListener("paste", (event) => void this.take(pictureIn(event.clipboardData)));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      void this.take(pictureIn(event.dataTransfer));
    });
  }

  learn({ abilities }: Loaded): void {
    this.sees = abilities?.includes("image") ?? true;
    element("picture").hidden = !this.sees;
    question.disabled = abilities !== undefined && !abilities.includes("text");
    question.placeholder = question.disabled ? "This model only listens: speak" : this.sees ? "Type, or add a picture" : "Type a message";
  }

  ask(text: string): void {
    if (text.trim() === "" && this.picture === null) return;
    const { picture } = this;
    question.value = "";
    this.attach(null);
    if (byTouch()) question.blur(); // the screen's keyboard would cover the answer
    this.voice.ask(text.trim(), picture);
  }

  private async take(picture: File | undefined): Promise<void> {
    if (picture === undefined) return;
    if (!this.sees) return this.trouble(new Problem("refused", "This model takes no pictures: type or speak instead."));
    try {
      this.attach(await this.voice.read(picture));
    } catch (error) {
      this.trouble(problemOf(error, "Reading the picture"));
    }
    file.value = ""; // the same file may be chosen again
  }

  private attach(picture: string | null): void {
    this.picture = picture;
    attached.hidden = picture === null;
    if (picture !== null) void draw(picture, attached.querySelector("canvas")!);
    question.focus();
  }
}

function pictureIn(data: DataTransfer | null): File | undefined {
  return [...(data?.files ?? [])].find((one) => one.type.startsWith("image/"));
}
