/** The address of a voice server, as a page names it. */

import { Problem } from "./problem";

const NONE = new Problem("refused", 'Name the voice server: new VoiceClient({ server: "https://…" }).');

/** A server's root, with a slash at its end. Throws a Problem. */
export function serverOf(server: string | URL | null): URL {
  if (server === null) throw NONE;
  const url = URL.canParse(String(server), location.href) ? new URL(server, location.href) : null;
  if (url === null || !/^(https?|wss?):$/.test(url.protocol)) {
    throw new Problem("refused", `This is no address of a voice server: ${String(server)}. One looks like https://….`);
  }
  url.protocol = url.protocol.replace("ws", "http");
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  url.search = url.hash = "";
  return url;
}
