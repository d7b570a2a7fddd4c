// The scenarios of `bindings/scenarios.json` in headless Chromium: `run.mjs SCENARIOS MODELS HOME`; or how fast a model answers
// there: `run.mjs --bench MODEL.pte [TOKENS]`.

import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { served, withPage } from "./serve.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const modules = dirname(fileURLToPath(import.meta.resolve("pteron-browser")));
const arguments_ = process.argv.slice(2);
const isBench = arguments_[0] === "--bench";
const models = isBench ? dirname(arguments_[1]) : arguments_[1];
const server = await served({
  "/pteron/": `${modules}/`,
  "/models/": `${models}/`,
  "/page.js": join(here, "page.js"),
  "/page.html": join(here, "page.html"),
});
try {
  await withPage(`${server.address}/page.html`, async (page) => {
    await page.waitForFunction("globalThis.ready === true");
    if (isBench) {
      const tokens = Number(arguments_[2] ?? 64);
      console.log(JSON.stringify(await page.evaluate(([model, tokens]) => globalThis.bench(model, tokens), [basename(arguments_[1]), tokens])));
      return;
    }
    for (const { name, given } of JSON.parse(readFileSync(arguments_[0], "utf8")).scenarios) {
      const facts = await page.evaluate(([name, given]) => globalThis.scenario(name, given), [name, given]);
      console.log(JSON.stringify({ name, facts }));
    }
  });
} finally {
  server.close();
}
