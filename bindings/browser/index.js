// Models as they are published, in a browser. Each model has a worker of its own, which computes in WebAssembly; every call is a
// promise, and what is disposed of gives its memory back whole.

import { PteronError, Remote } from "./remote.js";

export { PteronError };
export { remove, stored } from "./storage.js";

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** Options under the names that the library has for them, as JSON. */
function options(given) {
  const named = Object.entries(given ?? {}).filter(([, value]) => value !== undefined);
  return named.length ? JSON.stringify(Object.fromEntries(named.map(([name, value]) => [snake(name), value]))) : undefined;
}

const textOf = (json) => (json === undefined || json === null || typeof json === "string" ? json : JSON.stringify(json));
const answering = (given) => ({ ...given, schema: textOf(given.schema) ?? undefined });

/** Results under the names that JavaScript has for them. */
function renamed(value) {
  if (Array.isArray(value)) return value.map(renamed);
  if (!value || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [camel(name), renamed(inner)]));
}

/** What is to be opened, as the worker takes it. */
function sourceOf(source, keep = true) {
  if (source instanceof Blob) return { blob: source, name: source.name ?? "the file" };
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return { blob: new Blob([source]), name: "the bytes" };
  const url = new URL(String(source), globalThis.location?.href).href;
  return { url, keep };
}

/** A worker that holds what was opened. */
async function opened(what, source, { progress, signal, keep, ...given } = {}) {
  const remote = new Remote(what);
  try {
    const about = await remote.call(what, [sourceOf(source, keep), options(given)], { listener: progress, signal });
    return { remote, about };
  } catch (error) {
    await remote.dispose();
    throw error;
  }
}

/** What a program needs, in bytes. It is fetched for the answer, and not loaded. */
export async function requirements(source, { progress, signal, keep, ...given } = {}) {
  const remote = new Remote("requirements");
  try {
    return renamed(await remote.call("requirements", [sourceOf(source, keep), options(given)], { listener: progress, signal }));
  } finally {
    await remote.dispose();
  }
}

/** The version of the library. */
export async function version() {
  const remote = new Remote("version");
  try {
    return await remote.call("version", []);
  } finally {
    await remote.dispose();
  }
}

/** An answer that is being written: `for await` over its pieces, or await `answer`. */
export class Stream {
  #pieces = [];
  #wake = () => {};
  #ended = false;
  #stopped = false;
  #stop;

  constructor(start, stop) {
    this.#stop = stop;
    this.answer = start((piece) => {
      this.#pieces.push(piece);
      this.#wake();
      return !this.#stopped;
    }).finally(() => {
      this.#ended = true;
      this.#wake();
    });
    // Whoever only iterates gets the failure there.
    this.answer.catch(() => {});
  }

  /** Ends the answer; what was said until then stays. */
  stop() {
    this.#stopped = true;
    this.#stop();
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        while (this.#pieces.length) yield this.#pieces.shift();
        if (this.#ended) break;
        await new Promise((wake) => (this.#wake = wake));
      }
      await this.answer;
    } finally {
      if (!this.#ended) this.stop();
    }
  }
}

/** A conversation with a model, which remembers; made by `Model.chat`. One answer at a time is written in it. */
export class Chat {
  #remote;
  #number;
  #isDisposed = false;

  constructor(remote, number) {
    this.#remote = remote;
    this.#number = number;
  }

  #call(name, args = [], how = undefined) {
    if (this.#isDisposed) return Promise.reject(new PteronError({ kind: "Disposed", reason: "this chat was disposed of" }));
    return this.#remote.call(name, [this.#number, ...args], how);
  }

  /** Asks something; the listener gets the answer piece by piece and ends it by `false`. */
  async send(text, { listener, signal, ...given } = {}) {
    return renamed(await this.#call("send", [text, options(answering(given))], { listener, signal }));
  }

  /** The same, to be iterated over. */
  stream(text, given = {}) {
    return new Stream((listener) => this.send(text, { ...given, listener }), () => this.stop());
  }

  /** Gives the model what a tool has found that it called in its last answer. */
  async sendResult(found, { listener, signal } = {}) {
    return renamed(await this.#call("sendResult", [found], { listener, signal }));
  }

  /** Stops the answer that is being given; what was said until then stays. */
  stop() {
    this.#call("stop").catch(() => {});
  }

  /** Everything that was said, in order. */
  async history() {
    return renamed(await this.#call("history"));
  }

  /** How many questions have been answered. */
  async turns() {
    return (await this.history()).filter(({ role }) => role === "assistant").length;
  }

  /** Shows the model an image with the next question: the bytes of its file, PNG or JPEG. */
  show(image) {
    return this.#call("show", [image]);
  }

  /** Goes back until so many turns are left. */
  rewind(turns) {
    return this.#call("rewind", [turns]);
  }

  /** Takes the last turn back; what was asked in it. */
  undo() {
    return this.#call("undo");
  }

  /** Another conversation that goes on from here. */
  async fork() {
    return new Chat(this.#remote, await this.#call("fork"));
  }

  /** The conversation as bytes, to be kept. */
  save() {
    return this.#call("save");
  }

  /** Goes on with one that was kept. */
  restore(saved) {
    return this.#call("restore", [saved]);
  }

  /** Tokens that the caches hold, and can hold. */
  cacheState() {
    return this.#call("cacheState");
  }

  /** Cancels the answer that is being given, waits for its end, and gives the caches back. */
  async dispose() {
    if (this.#isDisposed) return;
    const ended = this.#call("disposeChat");
    this.#isDisposed = true;
    await ended.catch(() => {});
  }
}

/** A model that can be talked to. */
export class Model {
  #remote;

  constructor(remote) {
    this.#remote = remote;
  }

  /** Opens a program: at an address, in a file that was chosen, or in memory. */
  static async open(source, given) {
    return new Model((await opened("model", source, given)).remote);
  }

  async chat({ tools, history, system, whenFull, ...given } = {}) {
    const inner = JSON.parse(options(answering(given)) ?? "{}");
    const messages = history?.map(({ role, content, toolCalls }) => ({ role, content, tool_calls: toolCalls }));
    const chosen = { system, history: messages, tools: textOf(tools) ?? undefined, whenFull, answering: inner };
    return new Chat(this.#remote, await this.#remote.call("chat", [options(chosen)]));
  }

  /** Answers messages once; nothing is kept. */
  async generate(messages, { tools, listener, signal, ...given } = {}) {
    const asked = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
    const named = asked.map(({ role, content, toolCalls }) => ({ role, content, tool_calls: toolCalls }));
    const args = [JSON.stringify(named), textOf(tools) ?? undefined, options(answering(given))];
    return renamed(await this.#remote.call("generate", args, { listener, signal }));
  }

  /** What it holds, in bytes; `wasm` is all of the worker's memory. */
  memory() {
    return this.#remote.call("memory", []);
  }

  /** Whether it sees images: those that `Chat.show` gives it. */
  sees() {
    return this.#remote.call("sees", []);
  }

  /** Positions that a text may have. */
  context() {
    return this.#remote.call("context", []);
  }

  /** Cancels all that is being said with it, waits for that, and gives its memory back. */
  dispose() {
    return this.#remote.dispose();
  }
}

/** A model that makes vectors of texts. */
export class Embedder {
  #remote;

  constructor(remote) {
    this.#remote = remote;
  }

  static async open(source, given) {
    return new Embedder((await opened("embedder", source, given)).remote);
  }

  embed(texts, { signal } = {}) {
    return this.#remote.call("embed", [texts], { signal });
  }

  dispose() {
    return this.#remote.dispose();
  }
}

/** A speech model that writes down what is said. */
export class Transcriber {
  #remote;

  constructor(remote) {
    this.#remote = remote;
  }

  static async open(source, given) {
    return new Transcriber((await opened("transcriber", source, given)).remote);
  }

  /** Writes down what is said in samples of one channel, or in a sound file. */
  async transcribe(audio, { listener, signal, rate = 16000, ...given } = {}) {
    const sound = audio instanceof Float32Array ? { samples: audio, rate } : { bytes: await bytesOf(audio) };
    return renamed(await this.#remote.call("transcribe", [sound, options(given)], { listener, signal }));
  }

  dispose() {
    return this.#remote.dispose();
  }
}

async function bytesOf(audio) {
  const buffer = audio instanceof Blob ? await audio.arrayBuffer() : audio;
  return ArrayBuffer.isView(buffer) ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new Uint8Array(buffer);
}

const ARRAYS = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array, u32: Uint32Array, i32: Int32Array,
  u64: BigUint64Array, i64: BigInt64Array, f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array,
};

/** A tensor: its elements row by row. f16 and bf16 are their bits, in a `Uint16Array`. */
export class Tensor {
  constructor(dtype, shape, data) {
    if (!ARRAYS[dtype]) throw new PteronError({ kind: "Invalid", reason: `there is no dtype ${dtype}` });
    if (!(data instanceof ARRAYS[dtype])) {
      throw new PteronError({ kind: "Invalid", reason: `elements of ${dtype} come in a ${ARRAYS[dtype].name}` });
    }
    Object.assign(this, { dtype, shape, data });
  }
}

/** A program with the state that its methods keep from run to run, as ExecuTorch's `Module`. */
export class Module {
  #remote;

  constructor(remote, methods) {
    this.#remote = remote;
    this.methods = renamed(methods);
  }

  /** Loads a program (`.pte`). */
  static async load(source, given) {
    const { remote, about } = await opened("module", source, given);
    return new Module(remote, about);
  }

  /** Runs a method. Inputs are copied. */
  async execute(method, inputs = []) {
    const given = inputs.map((input) => {
      if (!(input instanceof Tensor)) return input;
      const { dtype, shape, data } = input;
      return { dtype, shape, bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
    });
    const outputs = await this.#remote.call("execute", [method, given]);
    return outputs.map((output) => {
      if (!output?.bytes) return output;
      const { dtype, shape, bytes } = output;
      return new Tensor(dtype, shape, new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, bytes.length / ARRAYS[dtype].BYTES_PER_ELEMENT));
    });
  }

  forward(...inputs) {
    return this.execute("forward", inputs);
  }

  /** Forgets what earlier runs have left. */
  reset() {
    return this.#remote.call("reset", []);
  }

  dispose() {
    return this.#remote.dispose();
  }
}
