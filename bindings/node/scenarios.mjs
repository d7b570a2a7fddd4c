// The scenarios of `bindings/scenarios.json` in JavaScript: `scenarios.mjs SCENARIOS MODELS HOME`; with `LIVES` behind it, what stays of
// so many models, and what a token takes.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Embedder, LiveSound, Model, Module, PteronError, Tensor, Transcriber, requirements } from "pteron";

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
const [file, models, home, lives] = process.argv.slice(2);
const talking = join(models, "talking.pte");
/** A model whose answers last long enough to be interrupted. */
const slow = (given) => Model.open(talking, { backend: given.slow, context: given.context });

const scenarios = {
  async open({ texts }) {
    const needs = await requirements(talking);
    const [events, converting, cancel] = [[], [], new AbortController()];
    const model = await Model.open(talking, { progress: ({ event }) => void events.push(event) });
    await model.dispose();
    cancel.abort();
    const progress = ({ event }) => void converting.push(event);
    const embedder = await Embedder.open(join(models, "embedding"), { home, progress });
    const [first, second, third] = await embedder.embed(texts);
    await embedder.dispose();
    return {
      needs_more_than_weights: needs.total > needs.weights,
      events,
      refused: await kind(() => Model.open(talking, { progress: () => false })),
      thrown: await kind(() => Model.open(talking, { progress: fail })),
      cancelled: await kind(() => Model.open(talking, { signal: cancel.signal })),
      converted: converting.includes("converting"),
      dimensions: first.length,
      equal: same(first, second),
      different: !same(first, third),
    };
  },

  async rewind({ system, questions, max_tokens: maxTokens, temperature }) {
    const model = await Model.open(talking);
    const chat = model.chat({ system, maxTokens, temperature });
    const first = await chat.send(questions[0]);
    const second = await chat.send(questions[1]);
    chat.rewind(1);
    const again = await chat.send(questions[1]);
    const fork = chat.fork();
    fork.rewind(0);
    chat.save(join(home, "node.chat"));
    const restored = model.chat();
    restored.restore(join(home, "node.chat"));
    const { position, capacity } = chat.cacheState;
    return {
      roles: chat.history.map(({ role }) => role),
      same_again: again.text === second.text,
      turns: chat.turns,
      fork_turns: fork.turns,
      restored_turns: restored.turns,
      undone: restored.undo(),
      position_is_within: 0 < position && position <= capacity,
      capacity,
      answer: first.text,
      tokens: first.tokens,
    };
  },

  async schema({ question, schema, unknown, broken }) {
    const chat = (await Model.open(talking)).chat();
    const answer = await chat.send(question, { schema, temperature: 0 });
    return {
      answer: answer.text,
      is_allowed: JSON.parse(schema).enum.includes(JSON.parse(answer.text)),
      finish: capital(answer.finishReason),
      unknown: await kind(() => chat.send(question, { schema: unknown })),
      broken: await kind(() => chat.send(question, { schema: broken })),
      turns: chat.turns,
    };
  },

  async tools({ tools, question, result, max_tokens: maxTokens, schema }) {
    const model = await Model.open(talking);
    const chat = model.chat({ tools, maxTokens, temperature: 0 });
    const [call] = (await chat.send(question, { schema, temperature: 0 })).toolCalls;
    await chat.sendResult(result);
    const generated = await model.generate([{ role: "user", content: question }], { tools, maxTokens, temperature: 0 });
    return {
      call: call.name,
      city: JSON.parse(call.arguments).city,
      roles: chat.history.map(({ role }) => role),
      generated: generated.text,
      generated_calls: generated.toolCalls.length,
    };
  },

  async "at once"(given) {
    const options = { maxTokens: given.max_tokens, temperature: given.temperature };
    const model = await Model.open(talking);
    const told = async (question) => {
      const stream = model.chat(options).stream(question);
      const pieces = [];
      for await (const piece of stream) pieces.push(piece);
      return [pieces.join(""), (await stream.answer).text];
    };
    const together = await Promise.all(given.questions.map(told));
    const alone = [];
    for (const question of given.questions) alone.push((await model.chat(options).send(question)).text);
    const busy = (await slow(given)).chat({ ignoreEnd: true });
    const stream = busy.stream("Hello");
    // A thread of its own has begun with it once there is a piece.
    const pieces = stream[Symbol.asyncIterator]();
    await pieces.next();
    const second = await kind(() => busy.send("Why?"));
    stream.stop();
    const finish = capital((await stream.answer).finishReason);
    return {
      same_as_alone: same(together.map(([, text]) => text), alone),
      pieces_make_the_answer: together.every(([pieces, text]) => pieces === text),
      second_call: second,
      finish,
      usable_after: (await busy.send("Why?", { maxTokens: 2 })).tokens.length <= 2,
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
    const open = (name) => Model.open(join(models, name));
    const missing = await open("nothing.pte").catch((error) => error);
    const silent = await open("silent.pte");
    return {
      missing: missing.kind,
      missing_named: missing.message.includes("nothing.pte"),
      text: await kind(() => open("text.txt")),
      broken: await kind(() => open("broken.pte")),
      silent: await kind(() => silent.chat()),
    };
  },

  async dispose(given) {
    const model = await slow(given);
    const chat = model.chat({ ignoreEnd: true });
    let begins;
    const begun = new Promise((resolve) => (begins = resolve));
    const asked = chat.send(given.question, { listener: (piece) => void begins(piece) });
    const first = await begun;
    await chat.dispose();
    const after = await kind(() => chat.send("Hello"));
    const stream = capital((await asked).finishReason);
    const other = model.chat({ ignoreEnd: true });
    const thrown = await kind(() => other.send(given.question, { listener: fail }));
    const turns = other.turns;
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
    const module = await Module.load(join(models, "silent.pte"));
    const input = new Tensor("i64", [1, tokens.length], BigInt64Array.from(tokens, BigInt));
    const [logits] = await module.execute("forward", [input, position]);
    module.reset();
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
    const transcriber = await Transcriber.open(join(models, "hearing"), { home });
    const heard = [];
    const found = await transcriber.transcribe(samples, { rate, listener: ({ event }) => void heard.push(event) });
    return {
      text: found.text,
      duration: found.duration,
      heard: heard.filter((event) => event === "begins" || event === "said"),
      refused: await kind(() => transcriber.transcribe(samples, { listener: () => false })),
      words: await kind(() => transcriber.transcribe(samples, { words: true })),
      ...(await live(transcriber, samples, rate)),
    };
  },
};

async function live(transcriber, samples, rate) {
  const said = new LiveSound(rate);
  const hearing = transcriber.transcribe(said);
  const piece = samples.length / 4;
  for (let at = 0; at < samples.length; at += piece) {
    said.push(samples.subarray(at, at + piece));
    await new Promise((wake) => setTimeout(wake, 5));
  }
  said.finish();
  const { text, duration } = await hearing;
  const silent = transcriber.transcribe(new LiveSound(rate));
  const again = setInterval(() => transcriber.stop(), 20);
  const unwanted = await kind(() => silent);
  clearInterval(again);
  return { live: `${text} of ${duration} s`, unwanted, late: await kind(() => said.push(samples)) };
}

/** KiB of the process in memory. */
function resident() {
  globalThis.gc?.();
  return Math.round(process.memoryUsage.rss() / 1024);
}

async function endure(lives) {
  let early = 0;
  for (let life = 1; life <= lives; life++) {
    const model = await Model.open(talking);
    const chat = model.chat({ maxTokens: 8, temperature: 0 });
    await chat.send("Hello", { listener: () => true });
    await chat.dispose();
    await model.dispose();
    if (life === Math.floor(lives / 2)) early = resident();
  }
  const late = resident();
  const model = await Model.open(talking);
  let least = Infinity;
  for (let round = 0; round < 40; round++) {
    const chat = model.chat({ maxTokens: 200, temperature: 0, ignoreEnd: true });
    const begin = performance.now();
    const answer = await chat.send("Hello", { listener: () => true });
    least = Math.min(least, (performance.now() - begin) / answer.tokens.length);
    await chat.dispose();
  }
  await model.dispose();
  return { lives, early_kib: early, late_kib: late, token_microseconds: least * 1000 };
}

if (lives) {
  console.log(JSON.stringify({ name: "endure", facts: await endure(Number(lives)) }));
} else {
  for (const { name, given } of JSON.parse(readFileSync(file, "utf8")).scenarios) {
    console.log(JSON.stringify({ name, facts: await scenarios[name](given) }));
  }
}
