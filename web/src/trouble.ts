/** What is in the way, in one sentence under the orb, with the time to the next attempt. */

import { element } from "./dom";
import type { Problem } from "./library";

const notice = element("notice");
const sentence = notice.querySelector("p")!;
const retry = element("retry");
const tryNow = element<HTMLButtonElement>("try-now");

export class Trouble {
  private timer = 0;

  constructor(tryAgain: () => void) {
    tryNow.addEventListener("click", tryAgain);
    element("dismiss").addEventListener("click", () => this.show(null));
  }

  /** `retry_ms`: when the client tries again; null: it does not. */
  show(problem: Problem | null, retry_ms: number | null = null): void {
    clearInterval(this.timer);
    sentence.textContent = problem?.message ?? "";
    notice.hidden = problem === null;
    tryNow.hidden = retry.hidden = problem === null || retry_ms === null;
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
