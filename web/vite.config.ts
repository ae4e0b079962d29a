import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the page works at `/` and behind a proxy that serves it under a path.
  base: "./",
  build: {
    target: "es2022",
    // Nothing becomes a data: address, so that the page's content security policy can be `default-src 'self'`.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      // The library keeps its name and its exports: other pages import it.
      input: { page: "index.html", voice: "src/library.ts" },
      preserveEntrySignatures: "strict",
      output: {
        entryFileNames: ({ name }) => (name === "voice" ? "voice.js" : "assets/[name]-[hash].js"),
        // At the root, as `voice.js` is: from there the library knows where the server is.
        chunkFileNames: "[name]-[hash].js",
      },
    },
  },
  worker: { format: "es" },
});
