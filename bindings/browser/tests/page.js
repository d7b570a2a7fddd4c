// What the page does in each scenario.

import { Embedder, Model, Module, PteronError, Tensor, Transcriber, remove, requirements, stored } from "/pteron/index.js";

/** The kind of error that something gives. */
async function kind(action) {
  try {
    await action();
  } catch (error) {
    if (error instanceof PteronError) return error.kind;
    throw error;
  }
  return "none";
}

const fail = () => {
  throw new RangeError("a listener's own mistake");
};
const capital = (word) => word[0].toUpperCase() + word.slice(1);
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const at = (name) => `/models/${name}`;
const talking = at("talking.pte");
/** A model whose answers last long enough to be interrupted. */
const slow = (given) => Model.open(talking, { backend: given.slow, context: given.context });
/** Gives back what was opened, whatever comes. */
async function using(opened, use) {
  const object = await opened;
  try {
    return await use(object);
  } finally {
    await object.dispose();
  }
}

const scenarios = {
  async open({ texts }) {
    await keeping();
    const needs = await requirements(talking);
    const [events, cancel] = [[], new AbortController()];
    const bytes = await (await fetch(talking)).blob();
    await using(Model.open(bytes, { progress: ({ event }) => void events.push(event) }), () => {});
    cancel.abort();
    const [first, second, third] = await using(Embedder.open(at("embedding.pte")), (embedder) => embedder.embed(texts));
    return {
      needs_more_than_weights: needs.total > needs.weights,
      events,
      refused: await kind(() => Model.open(talking, { progress: () => false })),
      thrown: await kind(() => Model.open(talking, { progress: fail })),
      cancelled: await kind(() => Model.open(talking, { signal: cancel.signal })),
      dimensions: first.length,
      equal: same(first, second),
      different: !same(first, third),
    };
  },

  async rewind({ system, questions, max_tokens: maxTokens, temperature }) {
    return using(Model.open(talking), async (model) => {
      const chat = await model.chat({ system, maxTokens, temperature });
      const first = await chat.send(questions[0]);
      const second = await chat.send(questions[1]);
      await chat.rewind(1);
      const again = await chat.send(questions[1]);
      const fork = await chat.fork();
      await fork.rewind(0);
      const restored = await model.chat();
      await restored.restore(await chat.save());
      const { position, capacity } = await chat.cacheState();
      return {
        roles: (await chat.history()).map(({ role }) => role),
        same_again: again.text === second.text,
        turns: await chat.turns(),
        fork_turns: await fork.turns(),
        restored_turns: await restored.turns(),
        undone: await restored.undo(),
        position_is_within: 0 < position && position <= capacity,
        capacity,
        answer: first.text,
        tokens: first.tokens,
      };
    });
  },

  async schema({ question, schema, unknown, broken }) {
    return using(Model.open(talking), async (model) => {
      const chat = await model.chat();
      const answer = await chat.send(question, { schema, temperature: 0 });
      return {
        answer: answer.text,
        is_allowed: JSON.parse(schema).enum.includes(JSON.parse(answer.text)),
        finish: capital(answer.finishReason),
        unknown: await kind(() => chat.send(question, { schema: unknown })),
        broken: await kind(() => chat.send(question, { schema: broken })),
        turns: await chat.turns(),
      };
    });
  },

  async tools({ tools, question, result, max_tokens: maxTokens, schema }) {
    return using(Model.open(talking), async (model) => {
      const chat = await model.chat({ tools, maxTokens, temperature: 0 });
      const [call] = (await chat.send(question, { schema, temperature: 0 })).toolCalls;
      await chat.sendResult(result);
      const generated = await model.generate([{ role: "user", content: question }], { tools, maxTokens, temperature: 0 });
      return {
        call: call.name,
        city: JSON.parse(call.arguments).city,
        roles: (await chat.history()).map(({ role }) => role),
        generated: generated.text,
        generated_calls: generated.toolCalls.length,
      };
    });
  },

  async "at once"(given) {
    const options = { maxTokens: given.max_tokens, temperature: given.temperature };
    const [model, slowly] = [await Model.open(talking), await slow(given)];
    const told = async (question) => {
      const stream = (await model.chat(options)).stream(question);
      const pieces = [];
      for await (const piece of stream) pieces.push(piece);
      return [pieces.join(""), (await stream.answer).text];
    };
    const together = await Promise.all(given.questions.map(told));
    const alone = [];
    for (const question of given.questions) alone.push((await (await model.chat(options)).send(question)).text);
    const busy = await slowly.chat({ ignoreEnd: true });
    const stream = busy.stream("Hello");
    const pieces = stream[Symbol.asyncIterator]();
    await pieces.next();
    const second = await kind(() => busy.send("Why?"));
    stream.stop();
    const finish = capital((await stream.answer).finishReason);
    const usable = (await busy.send("Why?", { maxTokens: 2 })).tokens.length <= 2;
    await Promise.all([model.dispose(), slowly.dispose()]);
    return {
      same_as_alone: same(together.map(([, text]) => text), alone),
      pieces_make_the_answer: together.every(([pieces, text]) => pieces === text),
      second_call: second,
      finish,
      usable_after: usable,
    };
  },

  async memory({ memory_limit: memoryLimit }) {
    try {
      await Model.open(talking, { memoryLimit });
    } catch (error) {
      return { error: error.kind, needed_is_more: error.needed > error.limit, limit: error.limit };
    }
  },

  async "bad file"() {
    const open = (name) => Model.open(at(name));
    const missing = await open("nothing.pte").catch((error) => error);
    return {
      missing: missing.kind,
      missing_named: missing.message.includes("nothing.pte"),
      text: await kind(() => open("text.txt")),
      broken: await kind(() => open("broken.pte")),
      silent: await using(open("silent.pte"), (silent) => kind(() => silent.chat())),
    };
  },

  async dispose(given) {
    const model = await slow(given);
    const chat = await model.chat({ ignoreEnd: true });
    let begins;
    const begun = new Promise((resolve) => (begins = resolve));
    const asked = chat.send(given.question, { listener: (piece) => void begins(piece) });
    const first = await begun;
    await chat.dispose();
    const after = await kind(() => chat.send("Hello"));
    const stream = capital((await asked).finishReason);
    const other = await model.chat({ ignoreEnd: true });
    const thrown = await kind(() => other.send(given.question, { listener: fail }));
    const turns = await other.turns();
    await model.dispose();
    const ofDisposed = await kind(() => other.send("Hello"));
    const gone = await kind(() => model.chat());
    await model.dispose();
    await other.dispose();
    return {
      first_piece: first !== "", after, stream, thrown, turns_after_throw: turns, chat_of_disposed: ofDisposed, model: gone,
      twice: true,
    };
  },

  async module({ tokens, position }) {
    const module = await Module.load(at("silent.pte"));
    const input = new Tensor("i64", [1, tokens.length], BigInt64Array.from(tokens, BigInt));
    const [logits] = await module.execute("forward", [input, position]);
    await module.reset();
    const [again] = await module.forward(input, position);
    const [about] = module.methods;
    const facts = {
      methods: module.methods.map(({ name }) => name),
      inputs: about.inputs.length,
      first_input: about.inputs[0].kind.tensor.dtype,
      shape: logits.shape,
      dtype: logits.dtype,
      largest: logits.data.indexOf(Math.max(...logits.data)),
      same_again: same([...logits.data], [...again.data]),
      too_few: await kind(() => module.forward(input)),
      unknown: await kind(() => module.execute("backward")),
    };
    await module.dispose();
    return { ...facts, disposed: await kind(() => module.forward(input, position)) };
  },

  async transcription({ seconds, rate, sample }) {
    const samples = new Float32Array(seconds * rate).fill(sample);
    return using(Transcriber.open(at("hearing.pte")), async (transcriber) => {
      const heard = [];
      const found = await transcriber.transcribe(samples, { rate, listener: ({ event }) => void heard.push(event) });
      return {
        text: found.text,
        duration: found.duration,
        heard: heard.filter((event) => event === "begins" || event === "said"),
        refused: await kind(() => transcriber.transcribe(samples, { listener: () => false })),
        words: await kind(() => transcriber.transcribe(samples, { words: true })),
      };
    });
  },
};

/** What only browsers have: files that a site keeps. An error where that is not as it should be. */
async function keeping() {
  const url = new URL(talking, location.href).href;
  const events = [];
  const open = () => using(Model.open(talking, { progress: ({ event }) => void events.push(event) }), () => {});
  await remove(url);
  await open();
  const kept = (await stored()).find((file) => file.url === url);
  await open();
  const found = [kept?.isWhole, events.join(" "), await remove(url), await remove(url)];
  const wanted = [true, "fetching loading loading", true, false];
  if (!same(found, wanted)) throw new Error(`files that are kept: ${found}, not ${wanted}`);
}

globalThis.scenario = (name, given) => scenarios[name](given);

/** How fast a model answers here, in tokens a second, and the memory of its worker, in bytes. */
globalThis.bench = async (name, maxTokens) =>
  using(Model.open(at(name), { keep: false }), async (model) => {
    const chat = await model.chat({ maxTokens, temperature: 0, ignoreEnd: true });
    const { stats, tokens, text } = await chat.send("Why is the sky blue?");
    const { wasm } = await model.memory();
    return { tokens: tokens.length, prefill: stats.prefillRate, decode: stats.decodeRate, memory: wasm, text };
  });

globalThis.ready = true;
