/** What went wrong, in one sentence that ends with the next step. */

export class Problem extends Error {
  override name = "Problem";
}

/** The sentence for whatever was thrown while `doing` something. */
export function sentence(thrown: unknown, doing: string): string {
  if (thrown instanceof Problem) return thrown.message;
  const reason = thrown instanceof Error ? thrown.message : String(thrown);
  return `${doing} failed (${reason}): reload the page and try again.`;
}
