import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the page works at `/` and behind a proxy that serves it under a path.
  base: "./",
  build: {
    target: "es2022",
    // Nothing becomes a data: address, so that the page's content security policy can be `default-src 'self'`.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  worker: { format: "es" },
});
