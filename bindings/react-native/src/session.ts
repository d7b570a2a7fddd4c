/** A conversation with a model: the interface of react-native-executorch's `createLLMChatSession`. */

import { PteronError } from "./error.js";
import { native, type Handle } from "./native.js";
import { settings } from "./settings.js";
import type {
  ChatMessage, LLMChatSession, LLMChatSessionOptions, LLMChatTurnResult, LLMGenerationConfig, LLMGenerationStats, LLMModel,
  ToolCall,
} from "./types.js";

const DEFAULT_MAX_TURNS = 5;

/** What happens while a model is opened, beside what react-native-executorch knows. */
export type Opening = {
  readonly signal?: AbortSignal;
  /** From 0 to 1, while a model by name is fetched or converted. */
  readonly onProgress?: (progress: number) => void;
};

type Answer = {
  text: string;
  tool_calls: { name: string; arguments: string }[];
  stats: { prompt_tokens: number; generated_tokens: number; published: string };
};

/** Options under the library's names. */
function answering(config: LLMGenerationConfig = {}): Record<string, unknown> {
  const { echo, ignoreEos, maxNewTokens, temperature, topK, topP, minP, repetitionPenalty, seed, stop, schema } = config;
  if ((echo as boolean | undefined) === true) {
    throw new PteronError({ kind: "Invalid", reason: "`echo`: an answer is what the model says, without its prompt" });
  }
  const named = {
    ignore_end: ignoreEos, max_tokens: maxNewTokens, temperature, top_k: topK, top_p: topP, min_p: minP,
    repetition_penalty: repetitionPenalty, seed, stop, schema: schema && JSON.stringify(schema),
  };
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined));
}

/** The library's figures under the names that they have here; times are of its clock. */
function statsOf(answer: Answer): LLMGenerationStats {
  const published = JSON.parse(answer.stats.published) as Record<string, number>;
  const moment = (name: string) => published[`${name}_ms`] ?? 0;
  return {
    numPromptTokens: answer.stats.prompt_tokens,
    numGeneratedTokens: answer.stats.generated_tokens,
    firstTokenMs: moment("first_token"),
    prefillDurationMs: Math.max(0, moment("prompt_eval_end") - moment("inference_start")),
    inferenceStartMs: moment("inference_start"),
    inferenceEndMs: moment("inference_end"),
    modelLoadStartMs: moment("model_load_start"),
    modelLoadEndMs: moment("model_load_end"),
  };
}

/** A message as the library has it. */
function plain(message: ChatMessage): { role: string; content: string; tool_calls?: string } {
  const content = message.content ?? "";
  if (typeof content !== "string") {
    throw new PteronError({ kind: "Invalid", reason: "messages are text; pictures and sound are not taken yet" });
  }
  const calls = message.role === "assistant" ? message.toolCalls : undefined;
  return { role: message.role, content, ...(calls?.length ? { tool_calls: JSON.stringify(calls) } : {}) };
}

/** A model, opened as far as nobody wants it no more. */
async function opened(config: LLMModel, { signal, onProgress }: Opening): Promise<Handle> {
  const { modelPath, tokenizerPath, context, backend, memoryLimit } = config;
  const named = { home: settings().home, tokenizer: tokenizerPath, context, backend, memory_limit: memoryLimit };
  const options = JSON.stringify(Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined)));
  const told = (event: string) => {
    const { bytes, total } = JSON.parse(event) as { bytes?: number; total?: number | null };
    if (bytes !== undefined && total) onProgress?.(Math.min(1, bytes / total));
  };
  const aborted = () => new PteronError({ kind: "Cancelled", reason: "cancelled" });
  if (signal?.aborted) throw aborted();
  const { call, model } = native().open(modelPath, options, told);
  const cancel = () => native().cancel(call);
  signal?.addEventListener("abort", cancel);
  try {
    const handle = await model;
    if (!signal?.aborted) return handle;
    await native().disposeModel(handle);
    throw aborted();
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

/** Opens a model and begins a conversation with it. */
export async function createLLMChatSession(
  config: LLMModel,
  options: LLMChatSessionOptions = {},
  opening: Opening = {},
): Promise<LLMChatSession> {
  const { generationConfig, initialMessages = [], stopRegex, toolOpts } = options;
  const { tools, parseToolCalls, maxToolTurns = DEFAULT_MAX_TURNS } = toolOpts ?? {};
  try {
    const usual = answering(generationConfig);
    const [first, ...rest] = initialMessages;
    const begun = {
      ...(first?.role === "system" ? { system: plain(first).content } : {}),
      history: (first?.role === "system" ? rest : initialMessages).map(plain),
      ...(tools?.length ? { tools: JSON.stringify(tools.map(({ execute: _, ...told }) => told)) } : {}),
      answering: usual,
    };
    const model = await opened(config, opening);
    let chat: Handle;
    try {
      chat = await native().chat(model, JSON.stringify(begun));
    } catch (error) {
      await native().disposeModel(model);
      throw error;
    }
    return session(model, chat, { usual, initialMessages, stopRegex, tools: tools ?? [], parseToolCalls, maxToolTurns });
  } catch (error) {
    throw PteronError.of(error);
  }
}

type Held = {
  usual: Record<string, unknown>;
  initialMessages: readonly ChatMessage[];
  stopRegex: RegExp | undefined;
  tools: NonNullable<LLMChatSessionOptions["toolOpts"]>["tools"];
  parseToolCalls: NonNullable<LLMChatSessionOptions["toolOpts"]>["parseToolCalls"] | undefined;
  maxToolTurns: number;
};

function session(model: Handle, chat: Handle, held: Held): LLMChatSession {
  const history: ChatMessage[] = [...held.initialMessages];
  let disposal: Promise<void> | undefined;
  let isBusy = false;
  let isStopped = false;

  const usable = () => {
    if (disposal) throw new PteronError({ kind: "Disposed", reason: "this session was disposed of" });
    if (isBusy) throw new PteronError({ kind: "Busy", reason: "another call is using this session" });
  };

  /** Questions and results of tools that the library counts as turns. */
  const turns = (messages: readonly ChatMessage[]) =>
    messages.filter(({ role }) => role === "assistant").length;

  async function answered(ask: (piece: (text: string) => void) => Promise<string>, onToken?: (token: string) => void) {
    let response = "";
    let thrown: { error: unknown } | undefined;
    const json = await ask((piece) => {
      // What comes after the end was wanted is still part of the answer, and nobody's to hear.
      if (disposal || isStopped) return;
      response += piece;
      try {
        onToken?.(piece);
      } catch (error) {
        thrown = { error };
        return stop();
      }
      // A global expression remembers where it found something.
      if (held.stopRegex) held.stopRegex.lastIndex = 0;
      if (held.stopRegex?.test(response)) stop();
    });
    if (!thrown) return JSON.parse(json) as Answer;
    const reason = `the listener failed: ${String(thrown.error)}`;
    throw Object.assign(new PteronError({ kind: "Listener", reason }), { cause: thrown.error });
  }

  function callsOf(answer: Answer): { toolCalls: readonly ToolCall[]; textContent?: string } | undefined {
    if (held.parseToolCalls) return held.parseToolCalls(answer.text);
    if (!answer.tool_calls.length) return undefined;
    const call = ({ name, arguments: given }: { name: string; arguments: string }): ToolCall => ({
      type: "function",
      function: { name, arguments: JSON.parse(given) as Record<string, unknown> },
    });
    return { toolCalls: answer.tool_calls.map(call) };
  }

  async function executed(call: ToolCall): Promise<ChatMessage> {
    const { name, arguments: given } = call.function;
    const tool = held.tools.find((tool) => tool.function.name === name);
    let content: string;
    try {
      content = tool ? await tool.execute(given) : `Error: Tool '${name}' is not recognized or not available.`;
    } catch (error) {
      content = `Error executing tool ${name}: ${String(error)}`;
    }
    return { role: "tool", name, content, ...(call.id === undefined ? {} : { toolCallId: call.id }) };
  }

  async function turn(
    message: string,
    onToken: ((token: string) => void) | undefined,
    config: LLMGenerationConfig | undefined,
  ): Promise<LLMChatTurnResult> {
    const start = history.length;
    const before = turns(history);
    const options = JSON.stringify({ ...held.usual, ...answering(config) });
    const stats: LLMGenerationStats[] = [];
    history.push(plain({ role: "user", content: message }) as ChatMessage);
    try {
      let answer = await answered((piece) => native().send(chat, message, options, piece), onToken);
      for (let round = 1; ; round++) {
        stats.push(statsOf(answer));
        const called = isStopped || disposal ? undefined : callsOf(answer);
        if (!called?.toolCalls.length) {
          history.push({ role: "assistant", content: answer.text });
          return { messages: history.slice(start), stats, finishReason: "stop" };
        }
        history.push({ role: "assistant", content: called.textContent ?? "", toolCalls: called.toolCalls });
        const results: ChatMessage[] = [];
        for (const call of called.toolCalls) results.push(await executed(call));
        history.push(...results);
        if (round >= held.maxToolTurns || disposal) {
          return { messages: history.slice(start), stats, finishReason: "maxToolTurns" };
        }
        const found = results.length === 1 ? results[0]?.content ?? "" : JSON.stringify(results.map(({ content }) => content));
        answer = await answered((piece) => native().sendResult(chat, found, piece), onToken);
      }
    } catch (error) {
      // As if it had never been asked; what failed is the error, whatever becomes of this.
      history.length = start;
      if (!disposal) await native().rewind(chat, before).catch(() => {});
      throw error;
    }
  }

  function stop(): void {
    isStopped = true;
    if (!disposal) native().stop(chat);
  }

  return {
    stop,
    async sendMessage(message, onToken, genConfig) {
      try {
        usable();
        [isBusy, isStopped] = [true, false];
        try {
          return await turn(message, onToken, genConfig);
        } finally {
          isBusy = false;
        }
      } catch (error) {
        throw PteronError.of(error);
      }
    },
    async rewind(questions) {
      try {
        usable();
        const asked = history.flatMap(({ role }, at) => (role === "user" ? [at] : []));
        const end = asked[questions] ?? history.length;
        await native().rewind(chat, turns(history.slice(0, end)));
        history.length = end;
      } catch (error) {
        throw PteronError.of(error);
      }
    },
    getHistory: () => [...history],
    getKVCacheState() {
      if (disposal) throw new PteronError({ kind: "Disposed", reason: "this session was disposed of" });
      try {
        const { position, capacity } = native().cacheState(chat);
        const whole = capacity || position;
        return {
          pos: position,
          maxSeqLen: capacity,
          remainingTokens: Math.max(0, whole - position),
          usageRatio: whole ? position / whole : 0,
        };
      } catch (error) {
        throw PteronError.of(error);
      }
    },
    dispose() {
      // The model waits for its chats; nobody has to wait for this, and whoever does waits for all of it.
      disposal ??= native().disposeModel(model);
      return disposal;
    },
  };
}
