/** One sound at a time outside the conversation: an answer again, or a voice's preview. */

export class OneSound {
  private context: AudioContext | null = null;

  /** Plays in the place of the sound before. Called in the handler of a click, else browsers keep it silent. */
  async play(load: (context: AudioContext) => AudioBuffer | Promise<AudioBuffer>): Promise<void> {
    this.stop();
    const context = (this.context = new AudioContext());
    const source = new AudioBufferSourceNode(context, { buffer: await load(context) });
    if (context !== this.context) return; // stopped, or replaced, while it was loaded
    source.connect(context.destination);
    source.onended = () => context === this.context && this.stop();
    source.start();
  }

  stop(): void {
    void this.context?.close();
    this.context = null;
  }
}
