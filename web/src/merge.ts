/** Settings laid over others. Knows no setting. */

export type Settings = { readonly [name: string]: unknown };

/**
 * `over` laid on `under`: objects are merged, anything else (a list, null) takes the place of what was there. An object
 * of another `type` has other fields, and takes its place as a whole.
 */
export function merged(under: Settings, over: Settings): Settings {
  const result: Record<string, unknown> = { ...under };
  for (const [name, value] of Object.entries(over)) {
    if (value === undefined) continue;
    const before = result[name];
    result[name] = plain(before) && plain(value) && sameType(before, value) ? merged(before, value) : value;
  }
  return result;
}

/** The settings of `whole` that `part` names; one that has a `type` as a whole. */
export function picked(whole: Settings, part: Settings): Settings {
  const result: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(part)) {
    const now = whole[name];
    result[name] = plain(now) && plain(value) && !("type" in now) ? picked(now, value) : now;
  }
  return result;
}

function sameType(before: Settings, value: Settings): boolean {
  return !("type" in value) || !("type" in before) || before["type"] === value["type"];
}

function plain(value: unknown): value is Settings {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
