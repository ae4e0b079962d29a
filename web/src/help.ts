/** The keyboard shortcuts of the page, and the version of the server. */

import { element } from "./dom";

export function startHelp(): void {
  const help = element("help");
  element("close-help").addEventListener("click", () => help.hidePopover());
  help.addEventListener("toggle", () => void showVersion(), { once: true });
  element("open-settings").addEventListener("click", () => void showVersion(), { once: true });
}

async function showVersion(): Promise<void> {
  const response = await fetch("./health").catch(() => null);
  const body = (await response?.json().catch(() => null)) as { version?: string } | null;
  if (!body?.version) return;
  for (const one of document.querySelectorAll(".version")) one.textContent = `Parley ${body.version}`;
}
