// The official clients in JavaScript: `openai`, `@anthropic-ai/sdk` and `ollama` stream, parse, call tools and tell errors
// apart. One line of JSON for every check, as checks.py has it. Packages are resolved from the folder in PTERON_NODE.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { PTERON_URL: url, PTERON_KEY: key, PTERON_MODEL: model, PTERON_SMALL: small } = process.env;
const require = createRequire(join(process.env.PTERON_NODE, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { Ollama } = await load("ollama");
const { zodResponseFormat } = await load("openai/helpers/zod");
const { z } = await load("zod");

const ai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const claude = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const llama = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });

async function check(name, work) {
  let outcome = "passed";
  let detail = "";
  try {
    await work();
  } catch (error) {
    outcome = "failed";
    detail = `${error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 400);
  }
  console.log(JSON.stringify({ name, outcome, detail }));
}

const hello = [{ role: "user", content: "Count from one to eight in words." }];
const asks = [{ role: "user", content: "What is the weather in Paris?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tool = { type: "function", function: { name: "get_weather", description: "Tells it.", parameters } };

await check("openai (JS): models.list", async () => {
  const names = [];
  for await (const found of ai.models.list()) names.push(found.id);
  assert(names.includes(model) && names.includes(small));
});

await check("openai (JS): chat.completions.stream", async () => {
  const stream = ai.chat.completions.stream({
    model,
    messages: hello,
    max_tokens: 100,
    temperature: 0,
    stream_options: { include_usage: true },
  });
  const pieces = [];
  stream.on("content", (piece) => pieces.push(piece));
  const whole = await stream.finalChatCompletion();
  assert(pieces.length > 2);
  assert.equal(pieces.join(""), whole.choices[0].message.content);
  assert((await stream.totalUsage()).total_tokens > 0);
});

await check("openai (JS): a stream that is left is given up", async () => {
  const stream = await ai.chat.completions.create({ model: small, messages: hello, max_tokens: 1000, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    break;
  }
});

await check("openai (JS): chat.completions.parse", async () => {
  const form = zodResponseFormat(z.object({ city: z.string() }), "weather");
  const answer = await ai.chat.completions.parse({
    model,
    messages: asks,
    response_format: form,
    max_tokens: 64,
    temperature: 0,
  });
  assert.equal(typeof answer.choices[0].message.parsed.city, "string");
});

await check("openai (JS): runTools calls a function and hands back what it gave", async () => {
  let given;
  const runner = ai.chat.completions.runTools(
    {
      model,
      messages: asks,
      max_tokens: 64,
      temperature: 0,
      tool_choice: { type: "function", function: { name: "get_weather" } },
      tools: [
        {
          type: "function",
          function: {
            name: "get_weather",
            description: "Tells it.",
            parameters,
            parse: JSON.parse,
            function: (found) => {
              given = found;
              return "sunny, 21 degrees";
            },
          },
        },
      ],
    },
    { maxChatCompletions: 1 },
  );
  await runner.done().catch(() => {});
  assert.equal(typeof given?.city, "string");
});

await check("openai (JS): errors are of the right classes", async () => {
  const ask = (change) => ai.chat.completions.create({ model: small, messages: hello, ...change });
  await assert.rejects(ask({ model: "none" }), OpenAI.NotFoundError);
  await assert.rejects(ask({ temperature: 9 }), OpenAI.BadRequestError);
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});

await check("openai (JS): responses.create and stream", async () => {
  const asked = { model: small, input: "Say hello.", max_output_tokens: 16 };
  assert((await ai.responses.create(asked)).output_text);
  const pieces = [];
  const stream = ai.responses.stream(asked);
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") pieces.push(event.delta);
  }
  assert(pieces.length > 2);
  assert.equal(pieces.join(""), (await stream.finalResponse()).output_text);
});

await check("anthropic (JS): messages.stream", async () => {
  const stream = claude.messages.stream({ model: small, messages: hello, max_tokens: 16 });
  const pieces = [];
  stream.on("text", (piece) => pieces.push(piece));
  const whole = await stream.finalMessage();
  assert(pieces.length > 2);
  assert.equal(pieces.join(""), whole.content[0].text);
  assert(whole.usage.output_tokens > 0);
});

await check("anthropic (JS): a forced tool", async () => {
  const tools = [{ name: "get_weather", description: "Tells it.", input_schema: parameters }];
  const choice = { type: "tool", name: "get_weather" };
  const answer = await claude.messages.create({ model, messages: asks, max_tokens: 64, tools, tool_choice: choice });
  const call = answer.content.find((block) => block.type === "tool_use");
  assert.equal(answer.stop_reason, "tool_use");
  assert.equal(typeof call.input.city, "string");
});

await check("anthropic (JS): tokens are counted and errors are of the right classes", async () => {
  assert((await claude.messages.countTokens({ model: small, messages: hello })).input_tokens > 0);
  const ask = (change) => claude.messages.create({ model: small, messages: hello, max_tokens: 8, ...change });
  await assert.rejects(ask({ model: "none" }), Anthropic.NotFoundError);
  await assert.rejects(ask({ max_tokens: -1 }), Anthropic.BadRequestError);
});

const few = { num_predict: 12, temperature: 0 };

await check("ollama (JS): chat, whole and streamed", async () => {
  const { message } = await llama.chat({ model: small, messages: hello, options: few });
  const pieces = [];
  for await (const piece of await llama.chat({ model: small, messages: hello, options: few, stream: true })) {
    pieces.push(piece);
  }
  assert.equal(pieces.map((piece) => piece.message.content ?? "").join(""), message.content);
  assert(pieces.length > 2 && pieces.at(-1).done && pieces.at(-1).eval_count > 0);
});

await check("ollama (JS): generate and lists", async () => {
  assert((await llama.generate({ model: small, prompt: "Once upon a time", options: few })).response);
  assert((await llama.list()).models.some((found) => found.model === small));
  assert((await llama.show({ model: small })).capabilities.length > 0);
});

await check("ollama (JS): tools and errors", async () => {
  const answer = await llama.chat({ model, messages: asks, tools: [tool], options: { num_predict: 64 } });
  assert.equal(answer.message.role, "assistant");
  await assert.rejects(llama.chat({ model: "none", messages: hello }), { status_code: 404 });
});
