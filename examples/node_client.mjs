// Asks a typed question over a WebSocket, and writes the spoken answer to a WAV file. Needs Node 22, and no package.
//
//     node examples/node_client.mjs "What can you do?" ws://127.0.0.1:8000 answer.wav
//
// With Node 20, add `--experimental-websocket` after `node`.

import { writeFileSync } from "node:fs";

const [question = "What can you do?", url = "ws://127.0.0.1:8000", output = "answer.wav"] = process.argv.slice(2);
const RATE_HZ = 24_000;
if (!globalThis.WebSocket) {
  console.error(`Node ${process.versions.node} has no WebSocket: use Node 22, or run node --experimental-websocket examples/node_client.mjs`);
  process.exit(1);
}
const socket = new WebSocket(`${url}/v1/realtime`);
const send = (event) => socket.send(JSON.stringify(event));
const sound = [];

socket.onopen = () => {
  const content = [{ type: "input_text", text: question }];
  send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  send({ type: "response.create" });
};
socket.onerror = () => {
  console.error(`No server answers at ${url}. Start one: make serve`);
  process.exitCode = 1;
};
socket.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  if (event.type === "response.output_audio.delta") sound.push(Buffer.from(event.delta, "base64"));
  else if (event.type === "response.output_audio_transcript.done") console.log(event.transcript);
  else if (event.type === "error") console.error(event.error.message);
  else if (event.type === "response.done") {
    writeFileSync(output, wav(Buffer.concat(sound)));
    socket.close();
  }
};

/** A WAV file of 16-bit samples. */
function wav(samples) {
  const header = Buffer.alloc(44);
  header.write("RIFF", 0);
  header.writeUInt32LE(36 + samples.length, 4);
  header.write("WAVEfmt ", 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20); // PCM
  header.writeUInt16LE(1, 22); // one channel
  header.writeUInt32LE(RATE_HZ, 24);
  header.writeUInt32LE(2 * RATE_HZ, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write("data", 36);
  header.writeUInt32LE(samples.length, 40);
  return Buffer.concat([header, samples]);
}
