// The chosen theme, before the first paint: the page's modules run after it. src/theme.ts applies later changes.
{
  let theme;
  try {
    theme = JSON.parse(localStorage.getItem("parley.choices"))?.theme;
  } catch {
    // A browser that forbids storage has no choice to recall.
  }
  const dark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
