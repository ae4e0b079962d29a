import { resolve } from "node:path";
import { build, defineConfig, type Plugin, type UserConfig } from "vite";

const TARGET = "es2022";

/** The page, and the library as other pages import it from this server. */
const page: UserConfig = {
  // Relative addresses: the page works at `/` and behind a proxy that serves it under a path.
  base: "./",
  build: {
    target: TARGET,
    // Nothing becomes a data: address, so that the page's content security policy can be `default-src 'self'`.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      // The library and its element keep their names and their exports: other pages import them.
      input: { page: "index.html", voice: "src/library.ts", call: "src/call_element.ts" },
      preserveEntrySignatures: "strict",
      output: {
        entryFileNames: ({ name }) => (name === "page" ? "assets/[name]-[hash].js" : "[name].js"),
        // At the root, as `voice.js` is: from there the library knows where the server is.
        chunkFileNames: "[name]-[hash].js",
      },
    },
  },
  worker: { format: "es" },
};

/** The library as an npm package: what bundles it knows nothing of files beside it, so that its worklets are within. */
const library: UserConfig = {
  build: {
    target: TARGET,
    copyPublicDir: false,
    lib: { entry: { voice: "src/library.ts", call: "src/call_element.ts" }, formats: ["es"] },
    rollupOptions: { output: { chunkFileNames: "library.js" } },
  },
  plugins: [worklets()],
};

function worklets(): Plugin {
  const ASKED = /^(.*\.worklet\.ts)\?worker&url$/;
  return {
    name: "worklets-within",
    enforce: "pre",
    resolveId: (source, importer) => (ASKED.test(source) ? resolve(importer!, "..", source) : null),
    load: async (id) => {
      const entry = ASKED.exec(id)?.[1];
      if (entry === undefined) return null;
      const options = { write: false, target: TARGET, minify: true, lib: { entry, formats: ["es" as const], fileName: "worklet" } };
      const made = await build({ configFile: false, logLevel: "error", publicDir: false, build: options });
      const { code } = (made as unknown as { output: { code: string }[] }[])[0]!.output[0]!;
      return `export default ${JSON.stringify(`data:text/javascript,${encodeURIComponent(code)}`)}`;
    },
  };
}

export default defineConfig(({ mode }) => (mode === "package" ? library : page));
