/** The words of the answers that are being told, so that each can be told as a whole at its end. Knows no sound. */

/** Tells the next words of an answer, or all of them. */
type Tell = (item: string, text: string, final: boolean) => void;

export class AnswerTexts {
  private readonly open = new Map<string, string>(); // those of one response: a handful
  private cutting: string | null = null; // interrupted: the server may say yet what was heard

  constructor(private readonly tell: Tell) {}

  begin(item: string): void {
    this.open.set(item, this.open.get(item) ?? "");
  }

  piece(item: string, text: string): void {
    this.open.set(item, (this.open.get(item) ?? "") + text);
    this.tell(item, text, false);
  }

  /** Interrupted: its end is told by `cut`, or where none comes by `settle`. */
  interrupted(item: string): void {
    if (this.open.has(item)) this.cutting = item;
  }

  /** Only `heard` of it reached the user; null: nobody knows, so what was told. */
  cut(item: string, heard: string | null): void {
    const told = this.open.get(item);
    if (told !== undefined) this.end(item, heard ?? told);
  }

  /** Those that are over. One that waits for what was heard of it waits on, unless something new begins. */
  settle(all = false): void {
    for (const [item, text] of [...this.open]) if (all || item !== this.cutting) this.end(item, text);
  }

  private end(item: string, text: string): void {
    this.open.delete(item);
    if (this.cutting === item) this.cutting = null;
    this.tell(item, text, true);
  }
}
