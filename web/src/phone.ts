/** The page's address for a phone: a QR code, where the server has an address that other machines reach. */

import { copyFrom } from "./clipboard";
import { element } from "./dom";
import type { Place } from "./library";

interface PhoneAddress {
  readonly url: string | null;
  /** Width and height of the code, in modules. */
  readonly size: number;
  /** Its dark modules as an SVG path. */
  readonly path: string;
}

const dialog = element<HTMLDialogElement>("phone");
const opener = element("open-phone");

export function startPhone(): void {
  const copy = element("copy-phone");
  copy.addEventListener("click", () => void copyFrom(copy, element("phone-url").textContent ?? ""));
  opener.addEventListener("click", () => {
    element("menu").hidePopover();
    dialog.showModal();
  });
}

/** Asks the server; it decides whether the page offers its code. */
export async function offerPhone({ server, key }: Place): Promise<void> {
  const page = encodeURIComponent(location.origin + location.pathname);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const response = await fetch(new URL(`phone?page=${page}`, server), { headers });
  if (!response.ok) return;
  const { url, size, path } = (await response.json()) as PhoneAddress;
  opener.hidden = url === null;
  if (url === null) return;
  element("phone-url").textContent = url;
  element("phone-insecure").hidden = url.startsWith("https:");
  element("phone-code").setAttribute("viewBox", `0 0 ${size} ${size}`);
  element("phone-code").firstElementChild!.setAttribute("d", path);
}
