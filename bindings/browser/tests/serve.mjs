// A page in headless Chromium over a server of its own: folders by prefix, nothing else, and a policy that allows no script but
// its own. PTERON_CHROMIUM names the browser where it is not in its usual place.

import { createReadStream, existsSync, statSync } from "node:fs";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { chromium } from "playwright-core";

const KINDS = { js: "text/javascript", mjs: "text/javascript", json: "application/json", html: "text/html", wasm: "application/wasm" };
const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:";
const USUAL = ["/usr/bin/chromium", "/usr/bin/chromium-headless-shell", "/usr/bin/google-chrome"];
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Serves a range of a file, or all of it. */
function send(request, reply, path) {
  const { size, mtimeMs } = statSync(path);
  const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
  const tag = `"${size}-${mtimeMs}"`;
  const isPart = range && (request.headers["if-range"] ?? tag) === tag && Number(range[1]) < size;
  const start = isPart ? Number(range[1]) : 0;
  reply.writeHead(isPart ? 206 : 200, {
    "content-type": KINDS[path.split(".").pop()] ?? "application/octet-stream",
    "content-security-policy": POLICY,
    "content-length": size - start,
    etag: tag,
  });
  createReadStream(path, { start }).pipe(reply);
}

/** A server for folders by prefix and single files by path. */
export async function served(folders) {
  const server = createServer((request, reply) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://host").pathname));
    const [prefix, folder] = Object.entries(folders).find(([prefix]) => path.startsWith(prefix)) ?? [];
    const file = folder && (prefix.endsWith("/") ? join(folder, path.slice(prefix.length)) : folder);
    if (!file || !existsSync(file) || !statSync(file).isFile()) return reply.writeHead(404).end();
    send(request, reply, file);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** Opens a page and calls `use` with it; what it says goes to standard error. */
export async function withPage(address, use) {
  const profile = mkdtempSync(join(tmpdir(), "pteron-browser-"));
  const executablePath = process.env.PTERON_CHROMIUM ?? USUAL.find((path) => existsSync(path));
  if (!executablePath) throw new Error(`there is no Chromium at ${USUAL.join(", ")}; PTERON_CHROMIUM names another`);
  const browser = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS });
  try {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(`page: ${error}`));
    page.on("console", (message) => message.type() === "error" && console.error(`page: ${message.text()}`));
    await page.goto(address);
    return await use(page);
  } finally {
    await browser.close();
    rmSync(profile, { recursive: true, force: true });
  }
}
