/** Light or dark: as the system, or as the user chose. */

import { element } from "./dom";
import { choices, choose, type Theme } from "./memory";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const PAPER = { light: "#f7f4ed", dark: "#141512" };

const themes = element<HTMLSelectElement>("themes");

export function startTheme(): void {
  element("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  themes.addEventListener("change", () => setTheme(themes.value as Theme));
  DARK.addEventListener("change", show);
  show();
}

export function setTheme(theme: Theme): void {
  choose({ theme });
  show();
}

function isDark(): boolean {
  const { theme } = choices();
  return theme === "auto" ? DARK.matches : theme === "dark";
}

function show(): void {
  const theme = isDark() ? "dark" : "light";
  themes.value = choices().theme;
  document.documentElement.dataset["theme"] = theme;
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) meta.content = PAPER[theme];
  document.dispatchEvent(new Event("themechange"));
}
