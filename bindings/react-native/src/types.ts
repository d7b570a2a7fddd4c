/** What an app says and gets, under the names of react-native-executorch 0.10; what is Pteron's own is marked. */

export type LLMGenerationConfig = {
  /** Not to be had: an answer is what the model says. */
  readonly echo?: false;
  readonly ignoreEos?: boolean;
  readonly maxNewTokens?: number;
  readonly temperature?: number;
  /** Pteron's own from here. */
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly seed?: number;
  readonly stop?: readonly string[];
  /** A JSON schema: the answer is JSON that it allows, and nothing else. */
  readonly schema?: object;
};

export type LLMGenerationStats = {
  readonly numPromptTokens: number;
  readonly numGeneratedTokens: number;
  readonly firstTokenMs: number;
  readonly prefillDurationMs?: number;
  readonly inferenceStartMs: number;
  readonly inferenceEndMs: number;
  readonly modelLoadStartMs: number;
  readonly modelLoadEndMs: number;
};

export type LLMKVCacheState = {
  readonly pos: number;
  readonly maxSeqLen: number;
  readonly remainingTokens: number;
  readonly usageRatio: number;
};

export type ChatMessageContent = string;

export type ToolCall = {
  readonly id?: string;
  readonly type?: "function" | string;
  readonly function: { readonly name: string; readonly arguments: Record<string, unknown> };
};

export type ChatMessage = Readonly<
  | { role: "system" | "user"; content: ChatMessageContent }
  | { role: "assistant"; content?: ChatMessageContent; toolCalls?: readonly ToolCall[] }
  | { role: "tool"; content: ChatMessageContent; toolCallId?: string; name?: string }
>;

export type ToolParameters = {
  readonly type?: "object" | string;
  readonly properties?: Record<string, unknown>;
  readonly required?: readonly string[];
  readonly [key: string]: unknown;
};

export type ToolDefinition<Args extends Record<string, unknown> = Record<string, unknown>> = {
  readonly type: "function" | string;
  readonly function: {
    readonly name: string;
    readonly description?: string;
    readonly parameters?: ToolParameters;
    readonly [key: string]: unknown;
  };
  readonly execute: (args: Args) => Promise<ChatMessageContent> | ChatMessageContent;
};

export type ToolParserResult = { readonly toolCalls: readonly ToolCall[]; readonly textContent?: string };
export type ToolParser = (text: string) => ToolParserResult | undefined;

export type LLMToolOpts = {
  readonly tools: readonly ToolDefinition[];
  /** Only where the model's calls are of a form that the library does not read itself. */
  readonly parseToolCalls?: ToolParser;
  readonly maxToolTurns?: number;
};

export type LLMModel = {
  /** A `.pte`, a GGUF file, a checkpoint folder, a URL, or the name of a model. */
  readonly modelPath: string;
  /** Only for programs that carry no tokenizer. */
  readonly tokenizerPath?: string;
  /** Not looked at: a program carries its chat template. */
  readonly tokenizerConfigPath?: string;
  /** Pteron's own: positions of the context, the backend, and the bytes that the model may take. */
  readonly context?: number;
  readonly backend?: string;
  readonly memoryLimit?: number;
};

export type LLMChatSessionOptions = {
  readonly generationConfig?: LLMGenerationConfig;
  readonly initialMessages?: readonly ChatMessage[];
  readonly stopRegex?: RegExp;
  readonly toolOpts?: LLMToolOpts;
  /** Nothing to be done: what the caches hold is compared with every prompt. */
  readonly resetOnTurn?: boolean;
};

export type LLMChatTurnResult = {
  readonly messages: readonly ChatMessage[];
  readonly stats: readonly LLMGenerationStats[];
  readonly finishReason: "stop" | "maxToolTurns";
};

export type LLMChatSession = {
  stop(): void;
  /** Cancels what is under way and waits for its end; it may be left alone too. */
  dispose(): Promise<void>;
  getHistory(): readonly ChatMessage[];
  getKVCacheState(): LLMKVCacheState;
  sendMessage(
    message: ChatMessageContent,
    onToken?: (token: string) => void,
    genConfig?: LLMGenerationConfig,
  ): Promise<LLMChatTurnResult>;
  /** Pteron's own: goes back until so many questions are left. */
  rewind(questions: number): Promise<void>;
};

export type ResourceOptions = { readonly preventLoad?: boolean; readonly forceDownload?: boolean };
