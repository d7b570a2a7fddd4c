// What an app does with a session, over the C library and a small random model: `PTERON_LIBRARY` and `PTERON_MODELS` (what the
// example `models` of `pteron-bindings` writes) say where they lie.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { download } from "../lib/download.js";
import { isRnExecuTorchError } from "../lib/error.js";
import { useNative } from "../lib/native.js";
import { createLLMChatSession } from "../lib/session.js";
import { configure } from "../lib/settings.js";
import { library_ } from "./library.mjs";

useNative(library_);
const modelPath = join(process.env.PTERON_MODELS, "talking.pte");
const generationConfig = { maxNewTokens: 8, temperature: 0 };

async function using(made, use) {
  const session = await made;
  try {
    return await use(session);
  } finally {
    await session.dispose();
  }
}
const talking = (options, use) => using(createLLMChatSession({ modelPath }, { generationConfig, ...options }), use);
const code = async (action) => {
  const error = await action().then(() => null, (error) => error);
  assert.ok(isRnExecuTorchError(error), String(error));
  return error.code;
};

test("a turn streams, is kept, and counts", () =>
  talking({ initialMessages: [{ role: "system", content: "Be brief." }] }, async (session) => {
    const pieces = [];
    const turn = await session.sendMessage("Hello", (piece) => pieces.push(piece));
    assert.deepEqual(turn.messages.map(({ role }) => role), ["user", "assistant"]);
    assert.equal(pieces.join(""), turn.messages[1].content);
    assert.equal(turn.finishReason, "stop");
    assert.deepEqual(session.getHistory().map(({ role }) => role), ["system", "user", "assistant"]);
    const [{ numGeneratedTokens, numPromptTokens, inferenceStartMs, inferenceEndMs }] = turn.stats;
    assert.equal(numGeneratedTokens, 8);
    assert.ok(numPromptTokens > 0 && inferenceEndMs >= inferenceStartMs);
    const { pos, maxSeqLen, remainingTokens, usageRatio } = session.getKVCacheState();
    assert.equal(maxSeqLen, 512);
    assert.equal(pos + remainingTokens, maxSeqLen);
    assert.ok(usageRatio > 0 && usageRatio < 1);
  }));

test("history that is given is gone on with, and rewinding gives the same answer again", () =>
  talking({ initialMessages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "Hello." }] }, async (session) => {
    const first = await session.sendMessage("Why?");
    await session.rewind(1);
    assert.equal(session.getHistory().length, 2);
    const again = await session.sendMessage("Why?");
    assert.deepEqual(again.messages, first.messages);
  }));

test("a tool is called and its result answered", () => {
  const schema = {
    type: "object", required: ["name", "arguments"], additionalProperties: false,
    properties: {
      name: { const: "weather" },
      arguments: { type: "object", properties: { city: { const: "Oslo" } }, required: ["city"], additionalProperties: false },
    },
  };
  const asked = [];
  const execute = ({ city }) => (asked.push(city), "14 degrees");
  const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } }, execute }];
  return talking({ generationConfig: { temperature: 0, maxNewTokens: 60 }, toolOpts: { tools, maxToolTurns: 3 } }, async (session) => {
    const turn = await session.sendMessage("How warm is it in Oslo?", undefined, { schema });
    assert.deepEqual(asked, ["Oslo"]);
    assert.deepEqual(turn.messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
    assert.deepEqual(turn.messages[1].toolCalls[0].function, { name: "weather", arguments: { city: "Oslo" } });
    assert.equal(turn.messages[2].content, "14 degrees");
    assert.equal(turn.stats.length, 2);
  });
});

test("calls without end come to their bound", () => {
  const tools = [{ type: "function", function: { name: "again" }, execute: () => { throw new RangeError("no"); } }];
  const parseToolCalls = () => ({ toolCalls: [{ function: { name: "again", arguments: {} } }], textContent: "" });
  return talking({ toolOpts: { tools, parseToolCalls, maxToolTurns: 2 } }, async (session) => {
    const turn = await session.sendMessage("Hello");
    assert.equal(turn.finishReason, "maxToolTurns");
    assert.match(turn.messages[2].content, /Error executing tool again: RangeError: no/);
  });
});

test("stopping and a pattern end an answer, and what was said stays", async () => {
  const slow = { modelPath, backend: "reference", context: 1024 };
  const endless = { generationConfig: { ignoreEos: true, temperature: 0 } };
  await using(createLLMChatSession(slow, endless), async (session) => {
    const turn = await session.sendMessage("Hello", () => session.stop());
    assert.ok(turn.messages[1].content.length > 0 && turn.stats[0].numGeneratedTokens < 100);
    assert.ok((await session.sendMessage("Again", undefined, { maxNewTokens: 2 })).stats[0].numGeneratedTokens <= 2);
  });
  await using(createLLMChatSession(slow, { ...endless, stopRegex: /./s }), async (session) => {
    assert.ok((await session.sendMessage("Hello")).stats[0].numGeneratedTokens < 100);
  });
});

test("disposing in mid-answer cancels and waits", async () => {
  const slow = { modelPath, backend: "reference", context: 1024 };
  const session = await createLLMChatSession(slow, { generationConfig: { ignoreEos: true } });
  let heard = 0;
  let begun;
  const first = new Promise((resolve) => (begun = resolve));
  const asked = session.sendMessage("Count.", () => (heard++, begun()));
  await first;
  await session.dispose();
  const until = heard;
  const turn = await asked;
  assert.equal(turn.finishReason, "stop");
  assert.equal(heard, until);
  assert.equal(await code(() => session.sendMessage("More")), "RESOURCE_DISPOSED");
  await session.dispose();
});

test("one answer at a time", async () => {
  const slow = { modelPath, backend: "reference", context: 1024 };
  await using(createLLMChatSession(slow, { generationConfig: { ignoreEos: true } }), async (session) => {
    let begun;
    const first = new Promise((resolve) => (begun = resolve));
    const asked = session.sendMessage("Count.", () => begun());
    await first;
    assert.equal(await code(() => session.sendMessage("Too")), "RESOURCE_BUSY");
    session.stop();
    await asked;
  });
});

test("what cannot be is an error with a code, and leaves the history alone", async () => {
  assert.equal(await code(() => createLLMChatSession({ modelPath: `${modelPath}.none` })), "LOAD_FAILED");
  assert.equal(await code(() => createLLMChatSession({ modelPath, memoryLimit: 1000 })), "LOAD_FAILED");
  const aborted = AbortSignal.abort();
  assert.equal(await code(() => createLLMChatSession({ modelPath }, {}, { signal: aborted })), "DOWNLOAD_ABORTED");
  await talking({}, async (session) => {
    assert.equal(await code(() => session.sendMessage("Hi", undefined, { echo: true })), "INVALID_ARGUMENT");
    assert.equal(await code(() => session.sendMessage("Hi", undefined, { schema: { type: "unheard of" } })), "INVALID_ARGUMENT");
    assert.equal(await code(() => session.sendMessage([{ kind: "image" }])), "INVALID_ARGUMENT");
    const fail = () => { throw new RangeError("a mistake of the app"); };
    assert.equal(await code(() => session.sendMessage("Hi", fail)), "EXECUTION_FAILED");
    assert.equal(session.getHistory().length, 0);
    assert.equal((await session.sendMessage("Hi")).messages.length, 2);
  });
});

test("files at URLs come by the app's own fetcher", async () => {
  const config = { modelPath: "https://host/model.pte", tokenizerPath: "/here/tokenizer.json" };
  assert.equal(await code(() => download(config)), "DOWNLOAD_FAILED");
  const told = [];
  configure({ fetcher: async (url, { onProgress }) => (onProgress(0.5), `/kept/${url.split("/").pop()}`) });
  const found = await download(config, { onProgress: (progress) => told.push(progress) });
  assert.deepEqual(found, { modelPath: "/kept/model.pte", tokenizerPath: "/here/tokenizer.json" });
  assert.deepEqual(told, [0.5, 1]);
});
