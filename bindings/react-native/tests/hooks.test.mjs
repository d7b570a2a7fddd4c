// What a component gets, with React's own test renderer, over the C library.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { useLLMChatSession } from "../lib/hooks.js";
import { useNative } from "../lib/native.js";
import { library_ } from "./library.mjs";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
useNative(library_);
const talking = join(process.env.PTERON_MODELS, "talking.pte");

/** A component, and what its hook gave last. */
async function shown(config, options) {
  const seen = {};
  const Probe = () => (Object.assign(seen, useLLMChatSession(config(), options)), null);
  let root;
  await act(async () => (root = create(createElement(Probe))));
  const until = async (done) => {
    for (let tries = 0; !done(seen); tries++) {
      assert.ok(tries < 500, JSON.stringify(seen));
      await act(async () => new Promise((resolve) => setTimeout(resolve, 10)));
    }
  };
  return { seen, until, gone: () => act(async () => root.unmount()), again: () => act(async () => root.update(createElement(Probe))) };
}

test("a session is there once it is ready, for objects written anew at each rendering too", async () => {
  const options = { generationConfig: { maxNewTokens: 4, temperature: 0 } };
  const { seen, until, again, gone } = await shown(() => ({ modelPath: talking }), options);
  assert.equal(seen.isReady, false);
  assert.equal(seen.sendMessage, undefined);
  await until(({ isReady }) => isReady);
  assert.equal(seen.downloadProgress, 100);
  const { sendMessage } = seen;
  await again();
  assert.equal(seen.sendMessage, sendMessage);
  const turn = await seen.sendMessage("Hello");
  assert.equal(turn.stats[0].numGeneratedTokens, 4);
  assert.equal(seen.getHistory().length, 2);
  await gone();
});

test("a component that goes in mid-answer cancels it", async () => {
  const config = () => ({ modelPath: talking, backend: "reference", context: 1024 });
  const { seen, until, gone } = await shown(config, { generationConfig: { ignoreEos: true } });
  await until(({ isReady }) => isReady);
  let begun;
  const first = new Promise((resolve) => (begun = resolve));
  const asked = seen.sendMessage("Count.", () => begun());
  await first;
  await gone();
  assert.equal((await asked).messages.length, 2);
  await assert.rejects(seen.sendMessage("More"), { code: "RESOURCE_DISPOSED" });
});

test("what cannot be opened is an error of the hook", async () => {
  const { seen, until, gone } = await shown(() => ({ modelPath: "/nothing/here.pte" }));
  await until(({ error }) => error);
  assert.equal(seen.error.code, "LOAD_FAILED");
  assert.equal(seen.isReady, false);
  await gone();
});

test("nothing is loaded where that is not wanted yet", async () => {
  const { seen, gone } = await shown(() => ({ modelPath: talking }), { preventLoad: true });
  await act(async () => new Promise((resolve) => setTimeout(resolve, 50)));
  assert.equal(seen.isReady, false);
  assert.equal(seen.resource, undefined);
  await gone();
});
