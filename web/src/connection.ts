/**
 * One WebSocket to the server that comes back by itself when it is lost.
 *
 * Knows text messages; nothing of what they say.
 */

export interface ConnectionEvents {
  connecting(): void;
  opened(): void;
  received(text: string): void;
  /** `retry_ms`: when the next attempt comes; null: the server refuses, none will. */
  lost(retry_ms: number | null, reason: string): void;
}

const RETRY_MS = [500, 1000, 2000, 4000, 8000]; // then 8 s for ever
const GREETING_TIMEOUT_MS = 10_000;
const POLICY_VIOLATION = 1008; // RFC 6455 §7.4.1: the same attempt would be refused again

export class Connection {
  private socket: WebSocket | null = null;
  private attempts = 0;
  private timer = 0;
  private greeted = false;

  constructor(
    private readonly url: string,
    private readonly events: ConnectionEvents,
  ) {
    // A laptop that wakes up or finds its network again need not wait.
    window.addEventListener("online", () => this.retryNow());
  }

  /** Bytes accepted by `send` that have not left yet. */
  get pendingBytes(): number {
    return this.socket?.bufferedAmount ?? 0;
  }

  open(): void {
    clearTimeout(this.timer);
    this.events.connecting();
    const socket = new WebSocket(this.url, ["realtime"]);
    this.socket = socket;
    this.timer = window.setTimeout(() => socket.close(), GREETING_TIMEOUT_MS);
    socket.onmessage = ({ data }: MessageEvent<string>) => this.receive(data);
    socket.onclose = ({ code, reason }) => this.close(code, reason);
  }

  /** Whether there was an open socket to take it. */
  send(text: string): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(text);
    return true;
  }

  private receive(text: string): void {
    if (!this.greeted) this.greet();
    this.events.received(text);
  }

  /** The first message, and not the mere handshake, shows that a server is there: only then do retries begin anew. */
  private greet(): void {
    clearTimeout(this.timer);
    this.attempts = 0;
    this.greeted = true;
    this.events.opened();
  }

  private close(code: number, reason: string): void {
    clearTimeout(this.timer);
    this.socket = null;
    if (code === POLICY_VIOLATION && !this.greeted) return this.events.lost(null, reason);
    this.greeted = false;
    const retry_ms = RETRY_MS[Math.min(this.attempts++, RETRY_MS.length - 1)]!;
    this.timer = window.setTimeout(() => this.open(), retry_ms);
    this.events.lost(retry_ms, reason);
  }

  private retryNow(): void {
    if (this.socket === null && this.attempts > 0) this.open();
  }
}
