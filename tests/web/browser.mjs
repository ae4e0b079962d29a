// Drives one Chromium page for the tests: commands in on standard input, one JSON line each, answers out on standard output.
// {"on": "page" | "context" | "page.keyboard" | "seen", "method": …, "args": […]}; it ends when the input ends.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { executable, modules, profile, fakeMicrophone, ...options } = JSON.parse(process.argv[2]);
const { chromium } = createRequire(modules)("playwright-core");

const microphone = fakeMicrophone
  ? ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", `--use-file-for-fake-audio-capture=${fakeMicrophone}%noloop`]
  : [];
const context = await chromium.launchPersistentContext(profile, {
  executablePath: executable,
  headless: true,
  ignoreDefaultArgs: ["--mute-audio"],
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ...microphone,
  ],
  ...options,
});
const page = context.pages()[0] ?? (await context.newPage());
const seen = { requests: [], errors: [] };
context.on("request", (request) => seen.requests.push(request.url()));
page.on("websocket", (socket) => seen.requests.push(socket.url()));
page.on("pageerror", (error) => seen.errors.push(String(error)));
page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));

const targets = { page, context, "page.keyboard": page.keyboard };

async function obey({ on, method, args }) {
  if (on === "seen") return seen;
  const value = await targets[on][method](...args);
  return typeof value?.dispose === "function" || value instanceof Buffer ? null : (value ?? null);
}

console.log(JSON.stringify({ value: "ready" }));
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await obey(JSON.parse(line)).then((value) => ({ value }), (error) => ({ error: String(error) }));
  console.log(JSON.stringify(answer, (_, value) => (typeof value === "function" || value === page ? undefined : value)));
}
await context.close();
