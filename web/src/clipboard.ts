/** Text to the clipboard, and files to the disk. */

const TOLD_MS = 900;

/** Copies a text and says so in the button for a moment. */
export async function copyFrom(button: HTMLElement, text: string): Promise<void> {
  const label = button.querySelector<HTMLElement>("span") ?? button;
  const words = (label.dataset["words"] ??= label.textContent ?? ""); // a second click may come while it says "Copied"
  label.textContent = (await copied(text)) ? "Copied" : "Not allowed";
  await new Promise((resolve) => setTimeout(resolve, TOLD_MS));
  label.textContent = words;
}

export function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 0);
}

/** Whether the clipboard took it. On an insecure address browsers have no clipboard, but an older way. */
async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

function copiedBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
