/** The conversation as text: one entry an utterance, in the order in which they began. Knows no protocol. */

type Speaker = "user" | "parley";

const NAMES: Record<Speaker, string> = { user: "You", parley: "Parley" };
const MAX_ENTRIES = 200; // an hour of talk; older ones leave the page
const SLACK_PX = 48;

export class Captions {
  private readonly entries = new Map<string, HTMLElement>();

  private atEnd = true; // a reader who scrolled back is left there

  constructor(private readonly list: HTMLElement) {
    list.addEventListener("scroll", () => (this.atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < SLACK_PX));
    new ResizeObserver(() => this.follow()).observe(list);
  }

  /** An entry with no words yet: someone began to speak. */
  begin(item: string, speaker: Speaker): void {
    this.entry(item, speaker);
    this.follow();
  }

  /** The next words of an utterance that is under way. */
  append(item: string, speaker: Speaker, text: string): void {
    words(this.entry(item, speaker)).append(text);
    this.follow();
  }

  /** All the words of an utterance; without any it stays as something that was not understood. */
  complete(item: string, speaker: Speaker, text: string): void {
    const entry = this.entry(item, speaker);
    words(entry).textContent = text || "not understood";
    entry.classList.toggle("empty", text === "");
    settle(entry);
    this.follow();
  }

  interrupted(item: string): void {
    this.entries.get(item)?.classList.add("interrupted");
  }

  /** No more words come for what is under way from this speaker. Screen readers now read it as a whole. */
  settle(speaker: Speaker): void {
    for (const entry of this.list.querySelectorAll<HTMLElement>(`.${speaker}[aria-busy]`)) settle(entry);
  }

  /** A line between two conversations. */
  divide(text: string): void {
    const line = document.createElement("li");
    line.className = "divider";
    line.textContent = text;
    this.list.append(line);
    this.follow();
  }

  private entry(item: string, speaker: Speaker): HTMLElement {
    const known = this.entries.get(item);
    if (known !== undefined) return known;
    const entry = made(speaker);
    this.entries.set(item, entry);
    this.list.append(entry);
    this.forgetOldest();
    return entry;
  }

  private forgetOldest(): void {
    if (this.entries.size <= MAX_ENTRIES) return;
    const [item, entry] = this.entries.entries().next().value!;
    entry.remove();
    this.entries.delete(item);
  }

  private follow(): void {
    if (this.atEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}

function made(speaker: Speaker): HTMLElement {
  const entry = document.createElement("li");
  entry.className = speaker;
  entry.setAttribute("aria-busy", "true");
  const name = document.createElement("b");
  name.textContent = NAMES[speaker];
  const text = document.createElement("p");
  text.dir = "auto";
  entry.append(name, text);
  return entry;
}

function words(entry: HTMLElement): HTMLElement {
  return entry.querySelector("p")!;
}

function settle(entry: HTMLElement): void {
  entry.removeAttribute("aria-busy");
}
