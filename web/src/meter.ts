/** A meter of how loud a sound is at this moment. */

const WINDOW = 512; // samples: 11 ms at 48 kHz

export class Meter {
  private readonly samples = new Float32Array(WINDOW);

  private constructor(private readonly node: AnalyserNode) {}

  /** Listens to a node of an audio graph; the graph stays as it was. */
  static of(source: AudioNode): Meter {
    const node = source.context.createAnalyser();
    node.fftSize = WINDOW;
    source.connect(node);
    return new Meter(node);
  }

  /** The peak of the last moment, 0 to 1. */
  level(): number {
    this.node.getFloatTimeDomainData(this.samples);
    return this.samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0);
  }
}
