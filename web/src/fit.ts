/** The height of a box that scrolls: it ends below a control that is shown whole, and the rest fades. */

const FADE_PX = 28; // as in style.css

/** Gives the box at most this height. */
export function fit(box: HTMLElement, most_px: number): void {
  box.style.maxHeight = `${most_px}px`;
  if (box.scrollHeight <= box.clientHeight) return;
  const top_px = box.getBoundingClientRect().top - box.scrollTop;
  const controls = [...box.querySelectorAll(".choice, .setting, button, label:not(.block), textarea")];
  const ends = controls.map((one) => one.getBoundingClientRect().bottom - top_px).filter((end) => end + FADE_PX <= most_px);
  if (ends.length > 0) box.style.maxHeight = `${Math.max(...ends) + FADE_PX}px`;
}
