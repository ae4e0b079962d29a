/** A problem in one sentence that ends with the next step; `code` names the step that failed. */

export type Code =
  | "insecure" // the page's address may not open devices
  | "unsupported" // the browser lacks something
  | "permission"
  | "no-device"
  | "busy" // another program holds the device
  | "device"
  | "unreachable"
  | "starting"
  | "key"
  | "no-key" // the page's own server gave none
  | "origin"
  | "full"
  | "refused"
  | "no-calls" // the server takes no WebRTC calls
  | "ice"
  | "lost"
  | "sound"
  | "tool"; // a function of the page's own, called by the model

export class Problem extends Error {
  override name = "Problem";

  constructor(
    readonly code: Code,
    message: string,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** The Problem in whatever was thrown while `doing` something. */
export function problemOf(thrown: unknown, doing: string): Problem {
  if (thrown instanceof Problem) return thrown;
  const reason = thrown instanceof Error ? thrown.message : String(thrown);
  return new Problem("refused", `${doing} failed (${reason}): reload the page and try again.`);
}
