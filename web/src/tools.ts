/**
 * The functions of a page that the model may call: each call ends in one result for the model, whatever the function does.
 *
 * Sans I/O: knows no line. Arguments are JSON, not checked against the schema: a model may miss it.
 */

import { Problem } from "./problem";
import type { Schema } from "./schema";
import type { FunctionCall } from "./wire";

/** What a tool's function learns of its call beside the arguments. */
export interface ToolContext {
  readonly callId: string;
  /** Aborted when nobody waits for the result any more: the time is over, or the conversation is. */
  readonly signal: AbortSignal;
}

export interface ToolOptions {
  /** The time that the function may take; 30 s by default. */
  readonly timeout_ms?: number;
}

/** One call of a tool: as it begins, and again as it ends. */
export interface ToolCall {
  readonly callId: string;
  readonly name: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
  readonly status: "running" | "done" | "failed";
  /** The result for the model; empty while it runs. */
  readonly output: string;
  readonly ms: number;
}

export interface ToolEvents {
  changed(call: ToolCall): void;
  /** The result of a call, for the model. */
  result(callId: string, output: string): void;
  /** Every call has its result: the model goes on. */
  goOn(): void;
  trouble(problem: Problem): void;
}

type Run = (args: never, context: ToolContext) => unknown;

interface Tool {
  readonly schema: Schema;
  readonly run: Run;
  readonly timeout_ms: number;
}

const TIMEOUT_MS = 30_000;
const NAME = /^[\w-]{1,64}$/;

export class Tools {
  private readonly tools = new Map<string, Tool>();
  private session = new AbortController();
  private running = 0;
  private owed = false; // results were given, and no answer was asked for since

  constructor(private readonly events: ToolEvents) {}

  get empty(): boolean {
    return this.tools.size === 0;
  }

  /** As the session's settings list them. A schema's own `description` is the tool's. */
  get settings(): object[] {
    return [...this.tools].map(([name, { schema: { description, ...parameters } }]) => ({
      type: "function",
      name,
      ...(description !== undefined && { description }),
      parameters: { type: "object", ...parameters },
    }));
  }

  /** In the place of one of the same name. Throws a Problem. */
  add(name: string, schema: Schema, run: Run, { timeout_ms = TIMEOUT_MS }: ToolOptions): void {
    if (!NAME.test(name)) throw new Problem("tool", `A tool can't be named ${JSON.stringify(name)}: use 1 to 64 letters, digits, _ and -.`);
    if (typeof run !== "function") throw new Problem("tool", `The tool ${name} has no function: give one behind its schema.`);
    this.tools.set(name, { schema, run, timeout_ms });
  }

  remove(name: string): void {
    this.tools.delete(name);
  }

  /** Run one call; one of a tool that is not here is left to others, who listen to events. */
  async call(call: FunctionCall): Promise<void> {
    const tool = this.tools.get(call.name);
    if (tool === undefined) return;
    const { signal } = this.session;
    this.running++;
    const begun_ms = performance.now();
    const known = { callId: call.call_id, name: call.name, arguments: call.arguments };
    this.events.changed({ ...known, status: "running", output: "", ms: 0 });
    const { output, status } = await this.outcome(call, tool, signal);
    this.events.changed({ ...known, status, output, ms: performance.now() - begun_ms });
    if (signal.aborted) return;
    this.running--;
    this.owed = true;
    this.events.result(call.call_id, output);
    this.events.goOn();
  }

  /** Whether the model is to go on now: it has results that no answer has seen. True once. */
  due(): boolean {
    const due = this.owed && this.running === 0;
    if (due) this.owed = false;
    return due;
  }

  /** An answer begins that sees every result so far. */
  seen(): void {
    this.owed = false;
  }

  /** The session is over: nobody waits for a result of its calls. */
  reset(): void {
    this.session.abort();
    this.session = new AbortController();
    this.running = 0;
    this.owed = false;
  }

  private async outcome(call: FunctionCall, tool: Tool, session: AbortSignal): Promise<Pick<ToolCall, "output" | "status">> {
    const limit = new AbortController();
    const signal = AbortSignal.any([session, limit.signal]);
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`it gave no result within ${tool.timeout_ms / 1000} s`)), tool.timeout_ms);
        session.addEventListener("abort", () => reject(session.reason), { once: true, signal: limit.signal });
      });
      const run = async () => tool.run(argumentsOf(call) as never, { callId: call.call_id, signal });
      return { output: textOf(await Promise.race([run(), late])), status: "done" };
    } catch (error) {
      return { output: session.aborted ? "" : this.failed(call.name, error), status: "failed" };
    } finally {
      clearTimeout(timer);
      limit.abort();
    }
  }

  /** The model learns it, and so does the page. */
  private failed(name: string, error: unknown): string {
    const reason = error instanceof Error ? error.message : String(error);
    this.events.trouble(new Problem("tool", `The tool ${name} failed (${reason}): ask again, or for something else.`, error));
    return JSON.stringify({ error: reason });
  }
}

function argumentsOf(call: FunctionCall): unknown {
  try {
    return JSON.parse(call.arguments || "{}");
  } catch {
    throw new Error(`its arguments are no JSON: ${call.arguments.slice(0, 200)}`);
  }
}

function textOf(result: unknown): string {
  return typeof result === "string" ? result : (JSON.stringify(result) ?? "done");
}
