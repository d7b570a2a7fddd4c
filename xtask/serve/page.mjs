// The page in a headless Chromium: pieces arrive one by one, stop frees the slot, a reload keeps history, what a model says
// stays text, branches, export and import, a key that is asked for, a phone's width, and axe. Screenshots go to PTERON_SHOTS.
// The browser is Debian's chromium-headless-shell or chromium, or what CHROMIUM names.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { PTERON_URL: url, PTERON_NODE: node, PTERON_SMALL: model, PTERON_SHOTS: shots, CHROMIUM } = process.env;
const require = createRequire(join(node, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const found = [CHROMIUM, "/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((path) => path && existsSync(path));

async function check(name, work) {
  let outcome = "passed";
  let detail = "";
  try {
    detail = (await work()) ?? "";
  } catch (error) {
    outcome = "failed";
    detail = `${error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 400);
  }
  console.log(JSON.stringify({ name: `page: ${name}`, outcome, detail }));
}

if (!found) {
  await check("a browser is there", () => assert.fail("no Chromium; on Debian: apt-get install chromium-headless-shell"));
  process.exit(0);
}
mkdirSync(shots, { recursive: true });
const browser = await chromium.launch({ executablePath: found, args: ["--no-sandbox"] });
const faults = [];

async function open(options = {}, context) {
  context ??= await browser.newContext({ viewport: { width: 1180, height: 800 }, ...options });
  const page = await context.newPage();
  page.on("console", (message) => { if (message.type() === "error") faults.push(message.text()); });
  page.on("pageerror", (error) => faults.push(String(error)));
  await page.goto(`${url}/`);
  await page.waitForSelector("#model option", { state: "attached" });
  return page;
}

const send = async (page, text) => {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
};
const answered = (page) => page.waitForSelector("#send:not([hidden])", { timeout: 120_000 });
const last = (page) => page.locator(".turn.assistant .answer").last();
const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });

async function running() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^pteron:num_requests_running\{[^}]*\} (\d+)/m.exec(text)?.[1] ?? 0);
}

// Answers in place of the server's, piece by piece.
const scripted = (page, pieces) =>
  page.route("**/v1/chat/completions", (route) => {
    const chunk = (delta, reason = null) => ({
      id: "x", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason: reason }],
    });
    const all = [...pieces.map((delta) => chunk(delta)), chunk({}, "stop")];
    const body = all.map((data) => `data: ${JSON.stringify(data)}\n\n`).join("") + "data: [DONE]\n\n";
    return route.fulfill({ status: 200, contentType: "text/event-stream", body });
  });

async function serious(page) {
  // By the protocol, which the page's own policy does not bind.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = bad.map(({ id, nodes }) => `${id}: ${nodes.map((one) => one.target).join(", ")}`);
  assert.equal(told.join("; "), "");
  return `${violations.length} lesser remarks`;
}

const page = await open();

await check("it has a strict policy and asks for nothing elsewhere", async () => {
  const reply = await fetch(`${url}/`);
  const policy = reply.headers.get("content-security-policy") ?? "";
  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /script-src 'sha256-/);
  assert.doesNotMatch(policy, /unsafe/);
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.reload();
  await page.waitForSelector("#model option", { state: "attached" });
  assert(asked.every((one) => one.startsWith(url) || one.startsWith("data:")), asked.join(" "));
});

await check("it is whole before anything is said", async () => {
  await shot(page, "1-welcome-light");
  assert.equal(await page.inputValue("#model"), model);
  return serious(page);
});

await check("pieces arrive one by one", async () => {
  const lengths = new Set();
  await send(page, "Tell me a story about a bird.");
  await page.waitForSelector("#stop:not([hidden])");
  const until = Date.now() + 60_000;
  while (lengths.size < 8 && Date.now() < until && (await page.isVisible("#stop"))) {
    lengths.add(await last(page).evaluate((node) => node.textContent.length));
    await page.waitForTimeout(30);
  }
  await shot(page, "2-streaming");
  assert(lengths.size >= 8, `only ${lengths.size} different lengths were seen`);
  return `${lengths.size} different lengths were seen`;
});

await check("stop frees the slot and keeps what was said", async () => {
  if (!(await page.isVisible("#stop"))) await send(page, "Tell me a very long story.");
  await page.waitForFunction(() => document.querySelector(".turn.assistant:last-child .answer")?.textContent.length > 20);
  assert.equal(await running(), 1, "no answer was under way");
  const before = Date.now();
  await page.click("#stop");
  while ((await running()) > 0) assert(Date.now() - before < 5000, "it is still under way");
  await answered(page);
  assert((await last(page).innerText()).length > 20);
  return `free after ${Date.now() - before} ms`;
});

await check("a reload keeps history", async () => {
  const said = await last(page).innerText();
  await page.reload();
  await page.waitForSelector(".turn.assistant .answer");
  assert.equal(await last(page).innerText(), said);
  assert.equal(await page.locator("#chats .to").count(), 1);
});

await check("a second tab sees the same chats", async () => {
  const other = await open({}, page.context());
  await other.waitForSelector("#chats .to");
  assert.equal(await other.locator("#chats .to").count(), 1);
  await other.close();
});

await check("an answer can be asked for again, and both are kept", async () => {
  await page.click("#tune");
  await page.fill("#max_tokens", "12");
  await page.click("#settings .strong");
  await page.locator('.turn.assistant [aria-label="Answer again"]').last().click();
  await page.waitForSelector("#stop:not([hidden])");
  await answered(page);
  const second = await last(page).innerText();
  assert.equal(await page.locator(".turn.assistant .branch").last().innerText(), "2 / 2");
  await page.locator('.turn.assistant [aria-label="Previous version"]').last().click();
  assert.notEqual(await last(page).innerText(), second);
});

await check("an edited message begins a branch", async () => {
  await page.locator('.turn.user [aria-label="Edit"]').first().click();
  await page.fill(".turn.user textarea", "Name a colour.");
  await page.click(".turn.user .strong");
  await page.waitForSelector("#stop:not([hidden])");
  await answered(page);
  assert.equal(await page.locator(".turn.user .said").first().innerText(), "Name a colour.");
  assert.equal(await page.locator(".turn.user .branch").first().innerText(), "2 / 2");
});

await check("tokens a second and the context are told", async () => {
  // An answer ends where its model ends it, or with the twelve tokens that it was allowed.
  const facts = await page.locator(".turn.assistant .facts").last().innerText();
  const tokens = Number(/tokens\/s · (\d+) tokens? · first after/.exec(facts)?.[1]);
  assert(tokens >= 1 && tokens <= 12, facts);
  await page.waitForFunction(() => /context [\d,]+ of [\d,]+ tokens/.test(document.querySelector("#used").textContent));
});

await check("a system prompt and sampling are sent", async () => {
  await page.click("#tune");
  await page.fill("#system", "Be brief.");
  await page.fill("#temperature", "0");
  await shot(page, "3-settings");
  await serious(page);
  await page.click("#settings .strong");
  const sent = page.waitForRequest("**/v1/chat/completions");
  await send(page, "Hello");
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
  assert.equal(body.temperature, 0);
  await answered(page);
});

const HOSTILE = [
  "<script>window.ran = true</" + "script>\n\n<img src=x onerror='window.ran = true'>\n\n",
  "[here](javascript:window.ran=true) and ![p](https://example.com/x.png)\n\n",
  "```html\n<b onclick='1'>bold</b>\n```\n\n| a | b |\n|---|---|\n| 1 | <i>2</i> |\n\n1. one\n   - two\n2. **three** and `four`\n",
  `${">".repeat(3000)} deep\n\n${"*".repeat(5000)}${"[".repeat(5000)}`,
];

await check("<script> in an answer stays text", async () => {
  const hostile = await open();
  await scripted(hostile, [{ reasoning_content: "<script>window.ran = true</" + "script>" }, ...HOSTILE.map((content) => ({ content }))]);
  await send(hostile, "<img src=x onerror='window.ran = true'>");
  await answered(hostile);
  const answer = last(hostile);
  assert.match(await answer.innerText(), /<script>window\.ran = true<\/script>/);
  assert.equal(await answer.locator("script, img, b, i").count(), 0);
  assert.equal(await hostile.locator("#talk a[href^='javascript']").count(), 0);
  assert.equal(await hostile.evaluate(() => window.ran), undefined);
  assert.equal(await answer.locator("table td").nth(1).innerText(), "<i>2</i>");
  assert.equal(await answer.locator("ol > li > ul > li").innerText(), "two");
  assert.equal(await answer.locator(".code pre").innerText(), "<b onclick='1'>bold</b>");
  await hostile.context().close();
});

const RICH = [
  { reasoning_content: "The user wants an overview. First the parts, then an example." },
  { content: "## How a wing works\n\nAir that flows over a **curved** surface is turned *downwards*, and the wing is pushed up.\n\n" },
  { content: "1. The leading edge parts the air.\n2. The trailing edge sends it down.\n   - faster air, more lift\n   - `lift = ½ ρ v² S C`\n\n" },
  { content: "| speed | lift |\n|---|---|\n| 10 m/s | 1 |\n| 20 m/s | 4 |\n\n> Lift grows with the square of speed.\n\n" },
  { content: "```python\ndef lift(density, speed, area, coefficient):\n    return 0.5 * density * speed**2 * area * coefficient\n```\n\nMore at https://example.com/wings.\n" },
];

await check("markdown, code with copy and folded reasoning, light and dark", async () => {
  const rich = await open();
  await rich.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await scripted(rich, RICH);
  await send(rich, "How does a wing work?");
  await answered(rich);
  assert.equal(await rich.locator("details.thought").getAttribute("open"), null);
  await shot(rich, "4-rich-light");
  const light = await serious(rich);
  await rich.locator(".code .icon").click();
  assert.match(await rich.evaluate(() => navigator.clipboard.readText()), /^def lift/);
  await rich.emulateMedia({ colorScheme: "dark" });
  await rich.locator("details.thought summary").click();
  await shot(rich, "5-rich-dark");
  await serious(rich);
  await rich.context().close();
  return light;
});

await check("a phone's width: nothing is cut off, the list is a drawer", async () => {
  const phone = await open({ viewport: { width: 360, height: 720 }, hasTouch: true, isMobile: true });
  await scripted(phone, RICH);
  await send(phone, "How does a wing work?");
  await answered(phone);
  const wide = await phone.evaluate(() => document.documentElement.scrollWidth);
  assert(wide <= 360, `${wide} wide`);
  await shot(phone, "6-phone");
  await serious(phone);
  await phone.click("#menu");
  await phone.waitForSelector("#chats .to", { state: "visible" });
  await phone.waitForTimeout(300);
  await shot(phone, "7-phone-drawer");
  await serious(phone);
  await phone.keyboard.press("Escape");
  await phone.waitForSelector("#new", { state: "hidden" });
  await phone.context().close();
});

await check("chats are exported, deleted and imported again", async () => {
  const waits = page.waitForEvent("download");
  await page.click("#export");
  const file = join(shots, "chats.json");
  await (await waits).saveAs(file);
  const said = await page.locator("#talk").innerText();
  await page.locator("#chats li").first().hover();
  await page.locator("#chats li .icon").first().click();
  await page.click('#sure [value="yes"]');
  await page.waitForSelector("#chats p");
  await page.setInputFiles("#file", file);
  await page.waitForSelector("#chats .to");
  await page.locator("#chats .to").first().click();
  assert.equal(await page.locator("#talk").innerText(), said);
});

await check("a file that is no export changes nothing", async () => {
  const bad = Buffer.from(JSON.stringify({ pteron: "chats", chats: [{ id: "a", nodes: { x: { id: "x", parent: "x", role: "user" } } }, 3, null] }));
  await page.setInputFiles("#file", { name: "bad.json", mimeType: "application/json", buffer: bad });
  await page.waitForSelector(".fault");
  assert.equal(await page.locator("#chats .to").count(), 1);
});

await check("keys alone are enough: send, stop, edit", async () => {
  await page.keyboard.press("Alt+KeyN");
  await page.waitForSelector(".welcome");
  await page.click("#tune");
  await page.fill("#max_tokens", "");
  await page.keyboard.press("Escape");
  await page.focus("#text");
  await page.keyboard.type("Tell me a very long story.");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".turn.assistant .answer")?.textContent.length > 5);
  await page.keyboard.press("Escape");
  await answered(page);
  await page.focus("#text");
  await page.keyboard.press("ArrowUp");
  await page.waitForSelector(".turn.user textarea:focus");
  await page.keyboard.press("Escape");
});

await check("a model that is loaded on demand says so until its first word", async () => {
  const patient = await open();
  let state = "unloaded";
  await patient.route("**/v1/models", async (route) => {
    const list = await (await route.fetch()).json();
    list.data.forEach((one) => { one.status = { value: state }; });
    await route.fulfill({ json: list });
  });
  let loaded;
  const loading = new Promise((done) => { loaded = done; });
  await patient.route("**/v1/chat/completions", async (route) => {
    state = "loading";
    await loading;
    state = "loaded";
    await route.fallback();
  });
  await patient.reload();
  await patient.waitForSelector('#state[data-state="unloaded"]');
  await patient.click("#tune");
  await patient.fill("#max_tokens", "4");
  await patient.click("#settings .strong");
  await send(patient, "Hello");
  await patient.waitForSelector(`.waiting >> text=Loading ${model}`);
  await patient.waitForSelector('#state[data-state="loading"]');
  await shot(patient, "8-loading");
  await serious(patient);
  loaded();
  await answered(patient);
  await patient.waitForSelector('#state[data-state="loaded"]');
  assert.equal(await patient.locator(".waiting").count(), 0);
  assert((await last(patient).innerText()).length > 0);
  await patient.context().close();
});

await check("a server that asks for a key is given one", async () => {
  const locked = await (await browser.newContext()).newPage();
  await locked.route("**/v1/models", async (route) => {
    const right = (await route.request().headerValue("authorization")) === "Bearer sesame";
    await (right ? route.fallback() : route.fulfill({ status: 401, json: { error: { message: "the API key is missing or wrong" } } }));
  });
  await locked.goto(`${url}/`);
  await locked.waitForSelector("#settings[open]");
  await locked.fill("#key", "sesame");
  await locked.click("#settings .strong");
  await locked.waitForSelector("#model option", { state: "attached" });
  await locked.context().close();
});

await check("a server that fails is told of in words", async () => {
  const failing = await open();
  await failing.route("**/v1/chat/completions", (route) => route.fulfill({ status: 429, json: { error: { message: "64 requests are waiting" } } }));
  await send(failing, "Hello");
  await failing.waitForSelector(".fault");
  assert.equal(await failing.locator(".fault").innerText(), "64 requests are waiting");
  await failing.context().close();
});

await check("nothing of it broke its own policy or threw", () => {
  const own = faults.filter((text) => !/status of (401|429)/.test(text));
  assert.equal(own.join("; "), "");
});

await browser.close();
