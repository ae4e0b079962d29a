/** The page's elements by their ids, and how new ones are made. */

/** Whether fingers point, and no mouse. */
export function byTouch(): boolean {
  return matchMedia("(pointer: coarse) and (hover: none)").matches;
}

export function element<T extends Element = HTMLElement>(id: string): T {
  return document.getElementById(id) as unknown as T;
}

export function made<K extends keyof HTMLElementTagNameMap>(tag: K, text = "", className = ""): HTMLElementTagNameMap[K] {
  const one = document.createElement(tag);
  one.textContent = text;
  one.className = className;
  return one;
}

/** A button with a text and its action. */
export function button(text: string, act: () => void, className = ""): HTMLButtonElement {
  const one = made("button", text, className);
  one.type = "button";
  one.addEventListener("click", act);
  return one;
}

/** Fills a box with buttons of which one is pressed, at first the first. */
export function fillChips<T extends string>(box: HTMLElement, names: readonly (readonly [T, string])[], choose: (id: T) => void): void {
  const press = (id: T) => [...box.children].forEach((chip, at) => chip.setAttribute("aria-pressed", String(names[at]![0] === id)));
  box.append(
    ...names.map(([id, name]) =>
      button(
        name,
        () => {
          press(id);
          choose(id);
        },
        "quiet",
      ),
    ),
  );
  press(names[0]![0]);
}

const SVG = "http://www.w3.org/2000/svg";

/** One of the icons that `index.html` defines. */
export function icon(name: string): SVGElement {
  const [svg, use] = [document.createElementNS(SVG, "svg"), document.createElementNS(SVG, "use")];
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Shows another icon in a button that has one. */
export function setIcon(button: Element, name: string): void {
  button.querySelector("use")!.setAttribute("href", `#i-${name}`);
}

/** Draws a picture that is a data URI, whole, on a canvas: the page's policy lets an <img> have none. */
export async function draw(picture: string, canvas: HTMLCanvasElement): Promise<void> {
  const bytes = Uint8Array.from(atob(picture.slice(picture.indexOf(",") + 1)), (char) => char.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const scale = Math.min(canvas.width / bitmap.width, canvas.height / bitmap.height);
  const [width, height] = [bitmap.width * scale, bitmap.height * scale];
  const context = canvas.getContext("2d")!;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
  bitmap.close();
}
