// Packs the library for npm: parley-voice-VERSION.tgz in the folder that is named (by default out/), from web/src.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build } from "vite";

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, "..");
const target = resolve(process.argv[2] ?? join(ROOT, "out"));
const folder = mkdtempSync(join(tmpdir(), "parley-voice-"));

try {
  mkdirSync(target, { recursive: true });
  await build({ root: HERE, mode: "package", logLevel: "error", build: { outDir: join(folder, "dist") } });
  declare(join(folder, "dist"));
  cpSync(join(HERE, "LIBRARY.md"), join(folder, "README.md"));
  cpSync(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
  writeFileSync(join(folder, "package.json"), JSON.stringify(about(), null, 2));
  execFileSync("npm", ["pack", "--loglevel", "error", "--pack-destination", target], { cwd: folder, stdio: ["ignore", "inherit", "inherit"] });
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** The types, by the compiler, from the sources: an import names its file in full, as every module resolution wants it. */
function declare(types) {
  const tsc = join(HERE, "node_modules", ".bin", "tsc");
  execFileSync(tsc, ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", join(HERE, "src"), "--outDir", types], { cwd: HERE, stdio: "inherit" });
  const used = new Set();
  const keep = (name) => {
    if (used.has(name)) return;
    used.add(name);
    const path = join(types, `${name}.d.ts`);
    const text = readFileSync(path, "utf8");
    for (const [, other] of text.matchAll(/(?:from |import\()"\.\/(\w+)"/g)) keep(other);
    writeFileSync(path, text.replace(/((?:from |import\()"\.\/\w+)"/g, '$1.js"'));
  };
  for (const name of ["library", "call_element"]) keep(name);
  for (const file of readdirSync(types)) if (file.endsWith(".d.ts") && !used.has(file.slice(0, -5))) rmSync(join(types, file));
}

function about() {
  const [, version] = /^version = "(.+)"$/m.exec(readFileSync(join(ROOT, "pyproject.toml"), "utf8"));
  return {
    name: "parley-voice",
    version,
    description: "Talk to a Parley server, or any that speaks the Realtime protocol, from a page",
    license: "Apache-2.0",
    type: "module",
    sideEffects: ["./dist/call.js"],
    exports: {
      ".": { types: "./dist/library.d.ts", default: "./dist/voice.js" },
      "./call": { types: "./dist/call_element.d.ts", default: "./dist/call.js" },
    },
    files: ["dist"],
  };
}
