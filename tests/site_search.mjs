// Runs the search worker of the built site, as a browser does, and prints the first result of each query.
//
//     node site_search.mjs SITE_FOLDER QUERY …

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const workers = join(site, "assets", "javascripts", "workers");
const script = readdirSync(workers).find((name) => /^search\..+\.js$/.test(name));
const { config, docs } = JSON.parse(readFileSync(join(site, "search", "search_index.json"), "utf-8"));
const SETUP = 0;
const QUERY = 2;

let receive;
let answered;
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => (receive = listener);
globalThis.postMessage = (message) => answered(message.data);
runInThisContext(readFileSync(join(workers, script), "utf-8"));

const ask = (type, data) =>
  new Promise((resolve) => {
    answered = resolve;
    receive({ data: { type, data } });
  });

await ask(SETUP, { config, docs, options: { suggest: false } });
const found = {};
for (const query of queries) {
  const { items } = await ask(QUERY, query);
  found[query] = items.map((sections) => sections[0].location.split("#")[0]);
}
console.log(JSON.stringify(found));
