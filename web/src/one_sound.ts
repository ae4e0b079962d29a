/** One sound at a time outside the conversation: an answer again, or a voice's preview. */

type Load = (context: AudioContext) => AudioBuffer | Promise<AudioBuffer>;

export class OneSound {
  private context: AudioContext | null = null;
  private ended: (() => void) | null = null;

  /**
   * Plays in the place of the sound before. Called in the handler of a click, else browsers keep it silent. `ended` is
   * called when this sound is over: played, stopped, replaced, or not to be loaded, which throws.
   */
  async play(load: Load, ended: (() => void) | null = null): Promise<void> {
    this.stop();
    this.ended = ended;
    const context = (this.context = new AudioContext());
    try {
      const source = new AudioBufferSourceNode(context, { buffer: await load(context) });
      if (context !== this.context) return; // stopped, or replaced, while it was loaded
      source.connect(context.destination);
      source.onended = () => context === this.context && this.stop();
      source.start();
    } catch (error) {
      if (context !== this.context) return; // likewise: closing a context may refuse its work
      this.stop();
      throw error;
    }
  }

  stop(): void {
    void this.context?.close();
    this.context = null;
    const { ended } = this;
    this.ended = null;
    ended?.();
  }
}
