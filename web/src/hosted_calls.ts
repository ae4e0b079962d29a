/** Calls of tools that the server runs, and the lines that it speaks meanwhile, from the events on the wire. Knows no element. */

import type { AnyEvent } from "./event_summary";
import type { ToolCall } from "./library";

const WAITS = "tool_wait"; // the purpose of a response that only bridges a tool's time

interface Item {
  readonly id: string;
  readonly type: string;
  readonly name: string;
  readonly arguments: string;
  readonly output?: string | null;
  readonly error?: { readonly message?: string } | null;
}

export class HostedCalls {
  private readonly begun_ms = new Map<string, number>(); // by the item of a call without a result
  private readonly waits = new Set<string>(); // responses, and then their items

  constructor(
    private readonly changed: (call: ToolCall) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Whether an answer's item only says that a tool still runs. */
  isWaitLine(item: string): boolean {
    return this.waits.has(item);
  }

  note(event: AnyEvent): void {
    const { type, item, response, response_id } = event as unknown as Fields;
    if (type === "response.created" && response!.metadata?.["purpose"] === WAITS) this.waits.add(response!.id);
    else if (type === "response.output_item.added" && this.waits.delete(response_id!)) this.waits.add(item!.id);
    else if (type === "response.output_item.done" && item!.type === "mcp_call") this.began(item!);
    else if (type === "conversation.item.done" && item!.type === "mcp_call") this.ended(item!);
  }

  private began(item: Item): void {
    this.begun_ms.set(item.id, this.now());
    this.changed({ ...known(item), status: "running", output: "", ms: 0 });
  }

  private ended(item: Item): void {
    const begun_ms = this.begun_ms.get(item.id);
    if (begun_ms === undefined) return; // before this page came back to its session
    this.begun_ms.delete(item.id);
    const failed = item.error != null;
    const output = (failed ? item.error!.message : item.output) ?? "";
    this.changed({ ...known(item), status: failed ? "failed" : "done", output, ms: this.now() - begun_ms });
  }
}

interface Fields {
  readonly type: string;
  readonly item?: Item;
  readonly response?: { readonly id: string; readonly metadata?: Readonly<Record<string, string>> | null };
  readonly response_id?: string;
}

function known({ id, name, arguments: given }: Item): Pick<ToolCall, "callId" | "name" | "arguments"> {
  return { callId: id, name, arguments: given };
}
