/** A list of choices of which one holds, as radio buttons. */

import { made } from "./dom";

export interface Choice {
  readonly id: string;
  readonly name: string;
  /** What else is known about it. */
  readonly note?: string;
}

/** Fills a box with the choices; `more` makes something that stands beside one. Unchanged choices keep the keyboard's place. */
export function fill(
  box: HTMLElement,
  choices: readonly Choice[],
  chosen: string,
  choose: (id: string) => void,
  more: (choice: Choice) => HTMLElement | null = () => null,
): void {
  const known = choices.some(({ id }) => id === chosen) ? chosen : choices[0]?.id;
  const inputs = [...box.querySelectorAll("input")];
  const names = choices.map(({ id, name }) => `${id} ${name}`).join("\n");
  if (names === box.dataset["choices"]) return inputs.forEach((input) => (input.checked = input.value === known));
  box.dataset["choices"] = names;
  box.replaceChildren(
    ...choices.map((choice) => {
      const input = made("input");
      input.type = "radio";
      input.name = box.id;
      input.value = choice.id;
      input.checked = choice.id === known;
      input.addEventListener("change", () => choose(choice.id));
      const label = made("label");
      const words = made("span", choice.name);
      if (choice.note) words.append(made("small", choice.note));
      label.append(input, words);
      const row = made("div", "", "choice");
      row.append(label);
      const beside = more(choice);
      if (beside !== null) row.append(beside);
      return row;
    }),
  );
}
