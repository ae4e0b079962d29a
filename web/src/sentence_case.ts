/** Recognized speech as a sentence: some models write no capital letters and no punctuation. */

const WRITTEN = /\p{Lu}|[.,?!;:]/u;

/** The words with a capital first letter and, in English, "I", unless the model wrote capitals or punctuation. */
export function sentenceCase(text: string, english: boolean): string {
  if (WRITTEN.test(text)) return text;
  const begun = text.replace(/\p{Ll}/u, (first) => first.toLocaleUpperCase());
  return english ? begun.replace(/(?<=^|\s)i(?=$|\s|')/g, "I") : begun;
}
