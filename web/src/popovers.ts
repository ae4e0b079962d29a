/** Popovers open above or below the bar of their button, within the window. */

import { fit } from "./fit";

const MARGIN_PX = 12;
const GAP_PX = 8;

export function placePopovers(): void {
  for (const button of document.querySelectorAll<HTMLButtonElement>("button[popovertarget]")) {
    const popover = document.getElementById(button.getAttribute("popovertarget")!)!;
    button.setAttribute("aria-expanded", "false");
    popover.addEventListener("toggle", (event) => {
      const open = (event as ToggleEvent).newState === "open";
      button.setAttribute("aria-expanded", String(open));
      if (open) place(popover, button);
    });
    window.addEventListener("resize", () => popover.matches(":popover-open") && place(popover, button));
  }
}

/** Above the dock, or between the header and the dock. */
function place(popover: HTMLElement, button: HTMLElement): void {
  const { left } = button.getBoundingClientRect();
  const { top, bottom } = button.closest("header, form")!.getBoundingClientRect();
  const above = top > innerHeight / 2;
  const edge_px = (above ? innerHeight - top : bottom) + GAP_PX;
  const far_px = above ? MARGIN_PX : innerHeight - document.getElementById("ask")!.getBoundingClientRect().top + GAP_PX;
  const right_px = innerWidth - popover.offsetWidth - MARGIN_PX;
  popover.style.inset = "auto";
  popover.style[above ? "bottom" : "top"] = `${edge_px}px`;
  popover.style.left = `${Math.max(MARGIN_PX, Math.min(left, right_px))}px`;
  fit(popover, innerHeight - edge_px - far_px);
}
