// Drives one Chromium for the tests: commands in on standard input, one JSON line each, answers out on standard output.
// {"open": context options} makes a page and answers its number; {"page": number, "on": "page" | "context" |
// "page.keyboard" | "page.mouse" | "cdp" | "seen" | "close", "method": …, "args": […]} acts on it. It ends when the input ends.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { executable, modules, fakeMicrophone } = JSON.parse(process.argv[2]);
const { chromium } = createRequire(modules)("playwright-core");

// Chromium takes the last list of features alone, so this one names playwright's own, too. The first three start a
// second renderer beside each page, for what drops down from an address bar that nobody sees: a quarter of all work.
const features = [
  "WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup",
  "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
  "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning",
  "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
];

const browser = await chromium.launch({
  executablePath: executable,
  headless: true,
  ignoreDefaultArgs: ["--mute-audio"],
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    `--disable-features=${features.join(",")}`,
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-loopback-in-peer-connection",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    ...(fakeMicrophone ? [`--use-file-for-fake-audio-capture=${fakeMicrophone}%noloop`] : []),
  ],
});
const pages = [];

async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const seen = { requests: [], errors: [] };
  context.on("request", (request) => seen.requests.push(request.url()));
  page.on("websocket", (socket) => seen.requests.push(socket.url()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  return pages.push({ page, context, seen, "page.keyboard": page.keyboard, "page.mouse": page.mouse }) - 1;
}

async function obey(command) {
  if (command.open) return open(command.open);
  const targets = pages[command.page];
  if (command.on === "seen") return targets.seen;
  if (command.on === "close") return targets.context.close();
  if (command.on === "cdp") targets.cdp ??= await targets.context.newCDPSession(targets.page);
  const value = await targets[command.on][command.method](...command.args);
  return typeof value?.dispose === "function" || value instanceof Buffer ? null : (value ?? null);
}

console.log(JSON.stringify({ value: "ready" }));
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await obey(JSON.parse(line)).then((value) => ({ value: value ?? null }), (error) => ({ error: String(error) }));
  const plain = (_, value) => (typeof value === "function" || value?.constructor?.name === "Page" ? undefined : value);
  console.log(JSON.stringify(answer, plain));
}
await browser.close();
