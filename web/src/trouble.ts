/** What is in the way, in one sentence under the orb, with the time to the next attempt. */

import { element } from "./dom";
import type { Problem } from "./library";

const notice = element("notice");
const sentence = element("problem");
const retry = element("retry");
const tryNow = element<HTMLButtonElement>("try-now");

export class Trouble {
  private timer = 0;

  private again: (() => void) | null = null;

  constructor() {
    tryNow.addEventListener("click", () => this.again?.());
    element("dismiss").addEventListener("click", () => this.show(null));
  }

  /** `retry_ms`: when the client tries again; null: it does not. `again` tries at once. */
  show(problem: Problem | null, retry_ms: number | null = null, again: (() => void) | null = null): void {
    clearInterval(this.timer);
    sentence.textContent = problem?.message ?? "";
    notice.hidden = problem === null;
    this.again = again;
    retry.hidden = problem === null || retry_ms === null;
    tryNow.hidden = problem === null || again === null;
    tryNow.textContent = retry_ms === null ? "Try again" : "Try now";
    element("diagnose").hidden = problem?.code === "permission"; // the sentence says all
    if (problem !== null && retry_ms !== null) this.countDown(performance.now() + retry_ms);
  }

  private countDown(until_ms: number): void {
    const tick = () => {
      const left = Math.ceil((until_ms - performance.now()) / 1000);
      retry.textContent = left > 0 ? `Trying again in ${left} s` : "Trying again …";
      if (left <= 0) clearInterval(this.timer);
    };
    tick();
    this.timer = window.setInterval(tick, 250);
  }
}
