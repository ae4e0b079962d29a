/** The name of a language in the browser's own words. */
export function languageName(tag: string): string {
  try {
    return new Intl.DisplayNames(undefined, { type: "language" }).of(tag) ?? tag;
  } catch {
    return tag; // not one that the browser knows
  }
}
