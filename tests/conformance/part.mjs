// What the clients' programs in JavaScript share: their task, the user's voice, and how they report (see part.py).

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const PHRASE = "say: the quick brown fox";
export const WORDS = PHRASE.slice("say: ".length);
export const LONG = "long 200";
export const TOOL_CALL = 'tool get_weather {"city": "Oslo"}';
export const HOSTED_CALL = 'tool forecast {"city": "Oslo"}';
export const RECALL = "said";
export const ENOUGH_S = 2.0;

const RATE_HZ = 24_000;
const PIECE_BYTES = (RATE_HZ / 50) * 2; // 20 ms of 16 bits
const TIMEOUT_MS = 40_000;

/** Do the task of the command line with `play`, and print its report. */
export async function run(play) {
  const late = setTimeout(() => fail(new Error("the program took too long")), TIMEOUT_MS);
  const task = JSON.parse(process.argv[2]);
  try {
    const report = await play(task);
    console.log(JSON.stringify(report));
    clearTimeout(late);
    process.exit(0);
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

process.on("unhandledRejection", fail);

/** The user's voice and the silence after it, 20 ms every 20 ms, each given to `send` as bytes. */
export async function speak(task, send, pauseS = 1.2) {
  const voice = readFileSync(task.speech);
  const pcm = Buffer.concat([voice, Buffer.alloc(Math.round(pauseS * RATE_HZ) * 2)]);
  const begun = performance.now();
  for (let at = 0, i = 0; at < pcm.length; at += PIECE_BYTES, i++) {
    await sleep(Math.max(0, begun + i * 20 - performance.now()));
    send(pcm.subarray(at, at + PIECE_BYTES));
  }
}

/** The user's voice as a WAV file. */
export function wav(task) {
  const pcm = readFileSync(task.speech);
  const head = Buffer.from("RIFF....WAVEfmt ....................data....", "latin1");
  head.writeUInt32LE(36 + pcm.length, 4);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE_HZ, 24);
  head.writeUInt32LE(RATE_HZ * 2, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.writeUInt32LE(pcm.length, 40);
  return Buffer.concat([head, pcm]);
}

export const seconds = (bytes) => bytes / 2 / RATE_HZ;

export { sleep };

/** Events as they come, and whoever waits for one. `push` takes a name and the event. */
export class Feed {
  #seen = [];
  #waiting = null;

  push(name, event) {
    this.#seen.push([name, event]);
    this.#waiting?.();
  }

  /** The next event of that name; those before it are gone. */
  async until(name) {
    for (;;) {
      while (this.#seen.length) {
        const [found, event] = this.#seen.shift();
        if (found === name) return event;
      }
      await new Promise((resolve) => (this.#waiting = resolve));
    }
  }
}
