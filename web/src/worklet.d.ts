/** The AudioWorkletGlobalScope (Web Audio API §1.32), which TypeScript's DOM library leaves out. */

declare class AudioWorkletProcessor {
  readonly port: MessagePort;
  constructor(options?: AudioWorkletNodeOptions);
}

declare function registerProcessor(
  name: string,
  processor: new (options: AudioWorkletNodeOptions) => AudioWorkletProcessor & {
    process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean;
  },
): void;

declare const currentTime: number; // seconds, of the first sample of the block being processed
declare const sampleRate: number; // hertz
