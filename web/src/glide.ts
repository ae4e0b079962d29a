/** Moves an element from where it stood to where it stands after a change; at once, if less motion is wanted. */

const REDUCED = matchMedia("(prefers-reduced-motion: reduce)");
const GLIDE_MS = 300;

export function glide(element: HTMLElement, change: () => void): void {
  const from = element.getBoundingClientRect();
  change();
  const to = element.getBoundingClientRect();
  if (REDUCED.matches || from.width === 0 || to.width === 0) return;
  const transform = `translate(${from.x - to.x}px, ${from.y - to.y}px) scale(${from.width / to.width})`;
  const transformOrigin = "0 0";
  const frames = [{ transform, transformOrigin }, { transform: "none", transformOrigin }];
  element.animate(frames, { duration: GLIDE_MS, easing: "cubic-bezier(0.2, 0.7, 0.2, 1)" });
}
