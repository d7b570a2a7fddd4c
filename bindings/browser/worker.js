// What runs in the worker: one model, embedder, transcriber or module, and the conversations with it. Answers are written a
// step at a time; between two steps the worker hears what its page says.

import start, * as wasm from "./pteron_browser.js";
import { fetched } from "./storage.js";

/** What is told and not yet agreed to, by call: a `false` ends the call. */
const calls = new Map();
const chats = new Map();
/** Answers that are being written. */
const answers = new Set();
let held = null;
let number = 0;
let memory = null;

const ready = start().then((exports) => (memory = exports.memory));

/** Lets messages in. */
const { port1, port2 } = new MessageChannel();
let turns = [];
port1.onmessage = () => turns.splice(0).forEach((turn) => turn());
const turn = () =>
  new Promise((resolve) => {
    turns.push(resolve);
    port2.postMessage(null);
  });

const cancelled = () => {
  throw Object.assign(new Error("cancelled"), { details: { kind: "Cancelled", reason: "cancelled" } });
};

/** Tells the page something and waits for what it says. */
function told(call, event) {
  const state = calls.get(call);
  if (!state.goOn) return Promise.resolve(false);
  postMessage({ call, event });
  return new Promise((resolve) => state.agreed.push(resolve));
}

/** A source as a file in WebAssembly's memory. */
async function file(call, { url, blob, keep, name }) {
  const from = blob ?? (await fetched(url, keep, (event) => told(call, event)));
  if (!(await told(call, JSON.parse(wasm.loading())))) cancelled();
  const filled = new wasm.File(name ?? url, from.size);
  const reader = from.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (!calls.get(call).goOn) {
      await reader.cancel();
      filled.free();
      cancelled();
    }
    filled.push(value);
  }
  return filled;
}

/** Writes an answer to its end. */
async function written(call, steps, stop) {
  const answer = (async () => {
    try {
      for (;;) {
        const said = JSON.parse(steps.step());
        if (said.piece) postMessage({ call, event: said.piece });
        if (said.answer) return said.answer;
        await turn();
        if (!calls.get(call).goOn) stop();
      }
    } finally {
      steps.free();
    }
  })();
  answers.add(answer);
  try {
    return await answer;
  } finally {
    answers.delete(answer);
  }
}

const kept = (chat) => {
  chats.set(++number, chat);
  return number;
};
const chatOf = (chat) => chats.get(chat);

/** Waits until nothing is being written. */
const ended = () => Promise.allSettled(answers);

/** A value's bytes as what JavaScript has for them. */
function value(values, index) {
  const { tensor, value } = JSON.parse(values.about(index));
  return tensor ? { ...tensor, bytes: values.bytes(index) } : value;
}

const known = {
  requirements: async (call, source, options) => JSON.parse(wasm.requirements(await file(call, source), options)),
  model: async (call, source, options) => {
    held = wasm.Model.open(await file(call, source), options);
  },
  embedder: async (call, source, options) => {
    held = wasm.Embedder.open(await file(call, source), options);
  },
  transcriber: async (call, source, options) => {
    held = wasm.Transcriber.open(await file(call, source), options);
  },
  module: async (call, source, options) => {
    held = wasm.Module.load(await file(call, source), options);
    return JSON.parse(held.methods());
  },
  version: () => wasm.version(),
  memory: () => ({ ...JSON.parse(held.memory()), wasm: memory.buffer.byteLength }),
  sees: () => held.sees(),
  context: () => held.context() ?? null,
  chat: (_, options) => kept(held.chat(options)),
  generate: (call, messages, tools, options) => {
    const steps = held.generate(messages, tools, options);
    return written(call, steps, () => steps.stop());
  },
  send: (call, chat, text, options) => written(call, chatOf(chat).send(text, options), () => chatOf(chat).stop()),
  sendResult: (call, chat, text) => written(call, chatOf(chat).sendResult(text), () => chatOf(chat).stop()),
  stop: (_, chat) => chatOf(chat).stop(),
  history: (_, chat) => JSON.parse(chatOf(chat).history()),
  show: (_, chat, image) => chatOf(chat).show(image),
  rewind: (_, chat, turns) => chatOf(chat).rewind(turns),
  undo: (_, chat) => chatOf(chat).undo() ?? null,
  fork: (_, chat) => kept(chatOf(chat).fork()),
  save: (_, chat) => chatOf(chat).save(),
  restore: (_, chat, saved) => chatOf(chat).restore(saved) ?? null,
  cacheState: (_, chat) => JSON.parse(chatOf(chat).cacheState()),
  disposeChat: async (_, chat) => {
    chatOf(chat).dispose();
    await ended();
  },
  embed: async (call, texts) => {
    const all = [];
    for (const text of texts) {
      all.push(held.embed(text));
      await turn();
      if (!calls.get(call).goOn) cancelled();
    }
    return all;
  },
  transcribe: async (call, { samples, rate, bytes }, options) => {
    // Nothing is told while the sound is read: what was found is told afterwards, in its order.
    if (!calls.get(call).goOn || !(await told(call, { event: "begins", seconds: samples ? samples.length / rate : null }))) cancelled();
    const found = samples ? held.transcribe(samples, rate, options) : held.transcribeFile(bytes, options);
    const { heard, transcript } = JSON.parse(found);
    for (const event of heard) if (event.event !== "begins" && !(await told(call, event))) cancelled();
    return transcript;
  },
  execute: (_, method, inputs) => {
    const given = new wasm.Values();
    for (const input of inputs) {
      if (input === null || input === undefined) given.pushNothing();
      else if (typeof input === "boolean") given.pushBool(input);
      else if (typeof input === "bigint" || Number.isSafeInteger(input)) given.pushInt(BigInt(input));
      else if (typeof input === "number") given.pushDouble(input);
      else given.pushTensor(input.dtype, Float64Array.from(input.shape), input.bytes);
    }
    const outputs = held.execute(method, given);
    const all = Array.from({ length: outputs.count() }, (_, index) => value(outputs, index));
    outputs.free();
    return all;
  },
  reset: () => held.reset(),
  dispose: async () => {
    for (const state of calls.values()) state.goOn = false;
    chats.forEach((chat) => chat.dispose());
    held?.dispose();
    await ended();
    // What the answers came to is told before the page ends this worker.
    await turn();
  },
};

/** What was thrown, as what the page makes an error of. A trap leaves nothing that could be used. */
function failure(error) {
  if (error instanceof WebAssembly.RuntimeError || error instanceof RangeError) {
    return { failed: { kind: "Run", reason: `the module has ended: ${error.message}` }, fatal: true };
  }
  if (typeof error === "string") return { failed: JSON.parse(error) };
  return { failed: error.details ?? { kind: "Run", reason: String(error) } };
}

onmessage = async ({ data: { call, name, args, goOn } }) => {
  const state = calls.get(call);
  if (name === undefined) {
    if (!state) return;
    state.goOn &&= goOn;
    state.agreed.splice(0, 1).forEach((agreed) => agreed(state.goOn));
    if (!state.goOn) state.agreed.splice(0).forEach((agreed) => agreed(false));
    return;
  }
  calls.set(call, { goOn: true, agreed: [] });
  try {
    await ready;
    postMessage({ call, done: await known[name](call, ...args) });
  } catch (error) {
    postMessage({ call, ...failure(error) });
  } finally {
    calls.delete(call);
  }
};
