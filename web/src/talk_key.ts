/** Push to talk: the key, or the finger, that marks a turn. */

const TAIL_MS = 120; // after the key is let go: the last word is still on its way through the microphone

export class TalkKey {
  /** Whether it is down. */
  held = false;
  private timer = 0; // of a turn whose tail is still coming

  constructor(
    private readonly begin: () => void,
    private readonly end: (at_ms: number) => void,
  ) {}

  /** A turn begins, unless it is a stumble: then the last one goes on. */
  press(): void {
    const stumble = this.timer !== 0;
    this.forget();
    this.held = true;
    if (!stumble) this.begin();
  }

  /** The turn ends once its tail is in. */
  release(): void {
    const at_ms = performance.now();
    this.held = false;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.end(at_ms);
    }, TAIL_MS);
  }

  /** No turn is marked any more. */
  forget(): void {
    clearTimeout(this.timer);
    this.timer = 0;
    this.held = false;
  }
}
