// Models as they are published, on the machine at hand. Whatever computes runs on a thread of its own and gives a promise.

import { PteronError, bytesAt, listening, native, numbersAt, owned } from "./native.js";

export { PteronError };

/** Options under the names that the library has for them. */
function options(given) {
  if (given === undefined || given === null) return null;
  const named = Object.entries(given).filter(([, value]) => value !== undefined);
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return JSON.stringify(Object.fromEntries(named.map(([name, value]) => [snake(name), value])));
}

const textOf = (json) => (json === undefined || json === null || typeof json === "string" ? json : JSON.stringify(json));

function answering(given) {
  return given && { ...given, schema: textOf(given.schema) };
}

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** Results under the names that JavaScript has for them. */
function read(json) {
  return JSON.parse(json, (_, value) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).map(([name, inner]) => [camel(name), inner]))
      : value,
  );
}

async function open(how, kind, source, given = {}) {
  const { progress, signal, ...rest } = given;
  const cancelled = () => new PteronError({ kind: "Cancelled", reason: "cancelled" });
  if (signal?.aborted) throw cancelled();
  const tell = (event) => !signal?.aborted && progress?.(read(event)) !== false;
  const place = [null];
  await listening("pteron_told", progress || signal ? tell : null, (callback) =>
    how.later(String(source), options(rest), callback, null, place),
  );
  return place[0];
}

/** What a model needs, in bytes; nothing is fetched, converted or loaded for the answer. */
export async function requirements(source, given) {
  const place = [null];
  await native.requirements.later(String(source), options(given), place);
  return read(place[0]);
}

export const version = () => native.version();

/** Text of a piece, which may have a zero byte in it. */
const pieceText = (text, length) => new TextDecoder().decode(bytesAt(text, length));

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

/** A conversation with a model, which remembers; made by `Model.chat`. One call at a time may use it. */
export class Chat {
  #chat;

  constructor(chat) {
    this.#chat = owned(this, "chat", chat);
  }

  async #answer(listener, ask) {
    const place = [null];
    const hear = listener && ((text, length) => listener(pieceText(text, length)));
    await listening("pteron_piece", hear, (callback) => ask(callback, place));
    return read(place[0]);
  }

  /** Asks something; the listener gets the answer piece by piece and ends it by `false`. */
  send(text, { listener, ...given } = {}) {
    const chosen = Object.keys(given).length ? options(answering(given)) : null;
    return this.#answer(listener, (callback, place) =>
      native.chatSend.later(this.#chat, text, chosen, callback, null, place),
    );
  }

  /** The same, to be iterated over. */
  stream(text, given = {}) {
    return new Stream((listener) => this.send(text, { ...given, listener }), () => this.stop());
  }

  /** Gives the model what a tool has found that it called in its last answer. */
  sendResult(found, { listener } = {}) {
    return this.#answer(listener, (callback, place) =>
      native.chatSendResult.later(this.#chat, found, callback, null, place),
    );
  }

  /** Stops the answer that is being given; what was said until then stays. */
  stop() {
    native.chatStop(this.#chat);
  }

  /** Everything that was said, in order. */
  get history() {
    const place = [null];
    native.chatHistory.now(this.#chat, place);
    return read(place[0]);
  }

  /** Shows the model an image, PNG or JPEG, with the next question. */
  show(image) {
    native.chatShow.now(this.#chat, image, image.byteLength);
  }

  /** How many questions have been answered. */
  get turns() {
    return this.history.filter((message) => message.role === "assistant").length;
  }

  /** Goes back until so many turns are left. */
  rewind(turns) {
    native.chatRewind.now(this.#chat, turns);
  }

  /** Takes the last turn back; what was asked in it. */
  undo() {
    const asked = this.history.filter((message) => message.role === "user" || message.role === "tool");
    if (!asked.length) return null;
    this.rewind(asked.length - 1);
    return asked[asked.length - 1].content;
  }

  /** Another conversation that goes on from here. */
  fork() {
    const place = [null];
    native.chatFork.now(this.#chat, place);
    return new Chat(place[0]);
  }

  /** Writes the conversation to a file. */
  save(path) {
    native.chatSave.now(this.#chat, String(path));
  }

  /** Goes on with a conversation in a file. */
  restore(path) {
    native.chatRestore.now(this.#chat, String(path));
  }

  /** Tokens that the caches hold, and can hold; 0 where nothing says it. */
  get cacheState() {
    const [position, capacity] = [[null], [null]];
    native.chatCacheState.now(this.#chat, position, capacity);
    return { position: Number(position[0]), capacity: Number(capacity[0]) };
  }

  /** Cancels the answer that is being given, waits for its end, and gives the caches back. */
  async dispose() {
    await native.chatDispose(this.#chat);
  }
}

/** A model that can be talked to. */
export class Model {
  #model;

  constructor(model) {
    this.#model = owned(this, "model", model);
  }

  /** Opens a program, a GGUF file or a checkpoint folder by its path, or a model by its name. */
  static async open(source, given) {
    return new Model(await open(native.modelOpen, "model", source, given));
  }

  /** Whether it sees images: those that `Chat.show` gives it. */
  get sees() {
    return native.modelSees(this.#model);
  }

  /** A conversation. */
  chat({ system, history, tools, whenFull, ...given } = {}) {
    const place = [null];
    const chosen = { system, history, tools: textOf(tools) ?? undefined, whenFull };
    const answers = Object.keys(given).length ? JSON.parse(options(answering(given))) : undefined;
    native.chatNew.now(this.#model, options({ ...chosen, answering: answers }), place);
    return new Chat(place[0]);
  }

  /** Answers messages once; nothing is kept. */
  async generate(messages, { tools, listener, ...given } = {}) {
    const place = [null];
    const asked = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
    const hear = listener && ((text, length) => listener(pieceText(text, length)));
    await listening("pteron_piece", hear, (callback) =>
      native.generate.later(
        this.#model, JSON.stringify(asked), textOf(tools) ?? null, options(answering(given)), callback, null, place,
      ),
    );
    return read(place[0]);
  }

  /** Cancels all that is being said with it, waits for that, and disposes of its chats too. */
  async dispose() {
    await native.modelDispose(this.#model);
  }
}

/** A model that makes vectors of texts. */
export class Embedder {
  #embedder;

  constructor(embedder) {
    this.#embedder = owned(this, "embedder", embedder);
  }

  static async open(source, given) {
    return new Embedder(await open(native.embedderOpen, "embedder", source, given));
  }

  /** The vector of each text. */
  async embed(texts) {
    const place = [null];
    await native.embed.later(this.#embedder, JSON.stringify(texts), place);
    return JSON.parse(place[0]);
  }

  async dispose() {
    await native.embedderDispose(this.#embedder);
  }
}

/** Sound that is still being said, of one channel, as a microphone gives it. */
export class LiveSound {
  #sound;

  constructor(rate = 16000) {
    const place = [null];
    native.soundNew.now(rate, place);
    this.#sound = owned(this, "sound", place[0]);
  }

  /** Adds samples between -1 and 1. Ten minutes that nobody has heard are kept, and no more. */
  push(samples) {
    const own = samples instanceof Float32Array ? samples : Float32Array.from(samples);
    native.soundPush.now(this.#sound, own, own.length);
  }

  /** Nothing more is said. */
  finish() {
    native.soundFinish(this.#sound);
  }

  /** What the library calls it. */
  static of(sound) {
    return sound.#sound;
  }
}

/** A speech model that writes down what is said. */
export class Transcriber {
  #transcriber;

  constructor(transcriber) {
    this.#transcriber = owned(this, "transcriber", transcriber);
  }

  static async open(source, given) {
    return new Transcriber(await open(native.transcriberOpen, "transcriber", source, given));
  }

  /** Leaves silence out from now on, by a small network that is fetched once. */
  async leaveOutSilence(given) {
    await native.leaveOutSilence.later(this.#transcriber, options(given));
  }

  /** Writes down what is said in a file, in samples of one channel between -1 and 1, or in a sound while it is being said. */
  async transcribe(audio, { rate = 16000, listener, ...given } = {}) {
    const place = [null];
    const hear = listener && ((event) => listener(read(event)));
    await listening("pteron_told", hear, (callback) => {
      const rest = [options(given), callback, null, place];
      if (audio instanceof LiveSound) return native.listen.later(this.#transcriber, LiveSound.of(audio), ...rest);
      const [path, samples] = audio instanceof Float32Array ? [null, audio] : [String(audio), null];
      return native.transcribe.later(this.#transcriber, path, samples, samples?.length ?? 0, rate, ...rest);
    });
    return read(place[0]);
  }

  /** Ends the transcription that is under way. */
  stop() {
    native.transcriberStop(this.#transcriber);
  }

  async dispose() {
    await native.transcriberDispose(this.#transcriber);
  }
}

const DTYPES = {
  u8: [0, Uint8Array], i8: [1, Int8Array], i16: [2, Int16Array], i32: [3, Int32Array], i64: [4, BigInt64Array],
  f16: [5, Uint16Array], f32: [6, Float32Array], f64: [7, Float64Array], bool: [11, Uint8Array], bf16: [15, Uint16Array],
  u16: [27, Uint16Array], u32: [28, Uint32Array], u64: [29, BigUint64Array],
};
const KINDS = { nothing: 0, tensor: 1, int: 2, double: 3, truth: 4 };

/** A tensor: its elements row by row. f16 and bf16 are their bits. */
export class Tensor {
  constructor(dtype, shape, data) {
    const known = DTYPES[dtype];
    if (!known || !(data instanceof known[1])) {
      throw new PteronError({ kind: "Invalid", reason: `elements of ${dtype} are not kept in ${data?.constructor?.name}` });
    }
    Object.assign(this, { dtype, shape, data });
  }
}

function value(argument) {
  const none = { kind: 0, dtype: 0, rank: 0, shape: null, data: null, bytes: 0, integer: 0, number: 0 };
  if (argument instanceof Tensor) {
    const { data, shape } = argument;
    const [dtype] = DTYPES[argument.dtype];
    const tensor = { kind: KINDS.tensor, dtype, rank: shape.length, shape, data, bytes: data.byteLength };
    return { ...none, ...tensor };
  }
  if (typeof argument === "bigint") return { ...none, kind: KINDS.int, integer: argument };
  if (typeof argument === "boolean") return { ...none, kind: KINDS.truth, integer: Number(argument) };
  if (Number.isInteger(argument)) return { ...none, kind: KINDS.int, integer: argument };
  if (typeof argument === "number") return { ...none, kind: KINDS.double, number: argument };
  return none;
}

function result(found) {
  if (found.kind === KINDS.int) return Number(found.integer);
  if (found.kind === KINDS.double) return found.number;
  if (found.kind === KINDS.truth) return Number(found.integer) !== 0;
  if (found.kind !== KINDS.tensor) return null;
  const [dtype, [, Elements]] = Object.entries(DTYPES).find(([, [code]]) => code === found.dtype);
  const bytes = bytesAt(found.data, found.bytes);
  const own = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return new Tensor(dtype, numbersAt(found.shape, found.rank), new Elements(own));
}

/** A program with the state that its methods keep from run to run, as ExecuTorch's `Module`. */
export class Module {
  #module;

  constructor(module) {
    this.#module = owned(this, "module", module);
  }

  /** Loads a program (`.pte`). */
  static async load(path, given) {
    const place = [null];
    await native.moduleLoad.later(String(path), options(given), place);
    return new Module(place[0]);
  }

  /** What its methods take and give. */
  get methods() {
    const place = [null];
    native.moduleMethods.now(this.#module, place);
    return read(place[0]);
  }

  /** Runs a method on tensors and numbers. */
  async execute(method, inputs = []) {
    const place = [null];
    await native.moduleExecute.later(this.#module, method, inputs.map(value), inputs.length, place);
    try {
      return Array.from({ length: Number(native.valuesCount(place[0])) }, (_, at) => result(native.valuesGet(place[0], at)));
    } finally {
      native.valuesFree(place[0]);
    }
  }

  forward(...inputs) {
    return this.execute("forward", inputs);
  }

  /** Forgets what earlier runs have left. */
  reset() {
    native.moduleReset.now(this.#module);
  }

  async dispose() {
    await native.moduleDispose(this.#module);
  }
}
