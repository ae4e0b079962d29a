/**
 * The orb: two voices as shapes. The disc is the answer, the ring around it the user; both move by real levels.
 *
 * Who wants less motion sees no shape change: only the ring's weight and the disc's light follow the voices.
 */

import type { VoiceState } from "./library";

export interface Levels {
  readonly user: number;
  readonly answer: number;
}

const POINTS = 72;
const RELEASE = 0.88; // of the last frame's level: a voice fades, and does not flicker
const REDUCED = matchMedia("(prefers-reduced-motion: reduce)");
const RESTING: ReadonlySet<VoiceState> = new Set(["idle", "lost"]);

export class Orb {
  private readonly context: CanvasRenderingContext2D;
  private state: VoiceState = "idle";
  private shown: Levels = { user: 0, answer: 0 };
  private frame = 0;
  private colours = { user: "", answer: "", line: "" };

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly levels: () => Levels,
  ) {
    this.context = canvas.getContext("2d")!;
    new ResizeObserver(() => this.fit()).observe(canvas);
    document.addEventListener("themechange", () => this.fit());
  }

  show(state: VoiceState): void {
    this.state = state;
    if (this.frame === 0) this.draw(performance.now());
  }

  private fit(): void {
    const style = getComputedStyle(this.canvas);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    this.colours = { user: colour("--user"), answer: colour("--answer"), line: colour("--line") };
    this.canvas.width = this.canvas.height = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (this.frame === 0) this.draw(performance.now());
  }

  private draw(now_ms: number): void {
    this.follow();
    const { width } = this.canvas;
    this.context.clearRect(0, 0, width, width);
    const time = REDUCED.matches ? 0 : now_ms / 1000;
    this.drawAnswer(width, time);
    this.drawUser(width, time);
    if (this.state === "thinking" || this.state === "connecting" || this.state === "waiting") this.drawWaiting(width, time);
    this.frame = RESTING.has(this.state) ? 0 : requestAnimationFrame((at_ms) => this.draw(at_ms));
  }

  private follow(): void {
    const now = RESTING.has(this.state) ? { user: 0, answer: 0 } : this.levels();
    const eased = (before: number, peak: number) => Math.max(Math.min(1, Math.sqrt(peak)), before * RELEASE);
    this.shown = { user: eased(this.shown.user, now.user), answer: eased(this.shown.answer, now.answer) };
  }

  private drawAnswer(width: number, time: number): void {
    const { context, shown } = this;
    const level = shown.answer;
    const grown = REDUCED.matches ? 0 : level;
    const rest = this.state === "muted" || this.state === "lost" ? 0.55 : 1;
    context.fillStyle = this.colours.answer;
    for (const [reach, light] of [
      [0.16, 0.1],
      [0.09, 0.2],
      [0, 0.85 + 0.15 * level],
    ] as const) {
      context.globalAlpha = light * rest;
      this.blob(width * (0.25 + reach * (0.35 + grown) + 0.03 * grown), width * 0.07 * grown, time * 1.3 + reach * 9);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  private drawUser(width: number, time: number): void {
    const { context, shown } = this;
    const hearing = this.state === "hearing" || this.state === "listening";
    const moved = REDUCED.matches ? 0 : shown.user;
    context.strokeStyle = hearing || shown.user > 0.05 ? this.colours.user : this.colours.line;
    context.lineWidth = width * (0.007 + 0.022 * shown.user);
    this.blob(width * (0.39 + 0.05 * moved), width * 0.035 * moved, -time * 1.7);
    context.stroke();
  }

  private drawWaiting(width: number, time: number): void {
    const { context } = this;
    context.strokeStyle = this.colours.answer;
    context.lineWidth = width * 0.016;
    context.lineCap = "round";
    context.beginPath();
    context.arc(width / 2, width / 2, width * 0.39, time * 4, time * 4 + 1.4);
    context.stroke();
  }

  /** A closed curve around the middle: a circle that waves by up to `wave`. */
  private blob(radius: number, wave: number, phase: number): void {
    const { context } = this;
    const middle = this.canvas.width / 2;
    context.beginPath();
    for (let i = 0; i < POINTS; i++) {
      const angle = (2 * Math.PI * i) / POINTS;
      const swing = 0.5 * Math.sin(3 * angle + phase) + 0.3 * Math.sin(5 * angle - 1.7 * phase) + 0.2 * Math.sin(2 * angle + 0.7 * phase);
      const reach = radius + wave * swing;
      context.lineTo(middle + reach * Math.cos(angle), middle + reach * Math.sin(angle));
    }
    context.closePath();
  }
}
