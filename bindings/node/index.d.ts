/** What went wrong, by what an app can do about it. */
export type ErrorKind =
  | "NotFound"
  | "NotEnoughMemory"
  | "Unsupported"
  | "Damaged"
  | "Cancelled"
  | "ContextFull"
  | "Invalid"
  | "Fetch"
  | "Storage"
  | "Run"
  | "Busy"
  | "Disposed"
  | "Listener";

/** Why something could not be done. */
export class PteronError extends Error {
  constructor(details: { kind: ErrorKind; reason: string });
  readonly kind: ErrorKind;
  /** Of `NotEnoughMemory`, in bytes. */
  readonly needed?: number;
  readonly limit?: number;
  /** Of `ContextFull`. */
  readonly tokens?: number;
  readonly context?: number;
}

export type Event =
  | { event: "fetching"; file: string; bytes: number; total: number | null }
  | { event: "converting"; bytes: number; total: number }
  | { event: "loading" }
  | { event: "says"; words: string }
  | { event: "remark"; words: string };

/** How a model is opened. What is not chosen takes what the machine has. */
export interface OpenOptions {
  /** The folder that models are fetched to and conversions are kept in. Models by name and checkpoints need one. */
  home?: string;
  settings?: string;
  tokenizer?: string;
  context?: number;
  /** Refuses a model that needs more bytes than this, before it is loaded. */
  memoryLimit?: number;
  backend?: string;
  threads?: number;
  precision?: "exact" | "fast";
  untrusted?: boolean;
  hubToken?: string;
}

export interface Opening extends OpenOptions {
  /** Told what happens; `false` cancels. */
  progress?: (event: Event) => boolean | void;
  signal?: AbortSignal;
}

/** What an answer shall be like. */
export interface GenerateOptions {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  seed?: number;
  stop?: string[];
  ignoreEnd?: boolean;
  /** A JSON schema: the answer is JSON that it allows, and nothing else. */
  schema?: string | object;
  /** A grammar in Lark's notation. */
  grammar?: string;
}

/** Gets an answer piece by piece; `false` ends it. */
export type Listener = (piece: string) => boolean | void;

export interface Message {
  role: string;
  content: string;
  toolCalls?: string;
}

export interface ToolCall {
  name: string;
  /** An object, as JSON. */
  arguments: string;
}

export interface Answer {
  text: string;
  tokens: number[];
  finishReason: "stop" | "length" | "cancelled";
  stop: string | null;
  toolCalls: ToolCall[];
  stats: {
    promptTokens: number;
    reusedTokens: number;
    generatedTokens: number;
    timeToFirstToken: number | null;
    prefillRate: number | null;
    decodeRate: number | null;
    published: string;
  };
}

export interface Requirements {
  weights: number;
  state: number;
  statePerToken: number;
  run: number;
  total: number;
  download: number | null;
  isEstimate: boolean;
}

/** What a model needs, in bytes; nothing is fetched, converted or loaded for the answer. */
export function requirements(source: string, options?: OpenOptions): Promise<Requirements>;
/** The version of the library. */
export function version(): string;

/** An answer that is being written: `for await` over its pieces, or await `answer`. */
export class Stream implements AsyncIterable<string> {
  private constructor();
  readonly answer: Promise<Answer>;
  /** Ends the answer; what was said until then stays. */
  stop(): void;
  [Symbol.asyncIterator](): AsyncGenerator<string, void, void>;
}

export interface ChatOptions extends GenerateOptions {
  system?: string;
  history?: Message[];
  tools?: string | object[];
  whenFull?: "slide" | "stop";
}

/** A conversation with a model, which remembers. One call at a time may use it: a second one gets `Busy`. */
export class Chat {
  private constructor();
  /** Asks something. */
  send(text: string, options?: GenerateOptions & { listener?: Listener }): Promise<Answer>;
  /** The same, to be iterated over. */
  stream(text: string, options?: GenerateOptions): Stream;
  /** Gives the model what a tool has found that it called in its last answer. */
  sendResult(found: string, options?: { listener?: Listener }): Promise<Answer>;
  /** Stops the answer that is being given; what was said until then stays. */
  stop(): void;
  readonly history: Message[];
  readonly turns: number;
  /** Shows the model an image, PNG or JPEG, with the next question. */
  show(image: Uint8Array): void;
  /** Goes back until so many turns are left. */
  rewind(turns: number): void;
  /** Takes the last turn back; what was asked in it. */
  undo(): string | null;
  /** Another conversation that goes on from here. */
  fork(): Chat;
  save(path: string): void;
  restore(path: string): void;
  /** Tokens that the caches hold, and can hold. */
  readonly cacheState: { position: number; capacity: number };
  /** Cancels the answer that is being given, waits for its end, and gives the caches back. */
  dispose(): Promise<void>;
}

/** A model that can be talked to. */
export class Model {
  private constructor();
  /** Opens a program, a GGUF file or a checkpoint folder by its path, or a model by its name. */
  static open(source: string, options?: Opening): Promise<Model>;
  /** Whether it sees images: those that `Chat.show` gives it. */
  readonly sees: boolean;
  chat(options?: ChatOptions): Chat;
  /** Answers messages once; nothing is kept. */
  generate(
    messages: string | Message[],
    options?: GenerateOptions & { tools?: string | object[]; listener?: Listener },
  ): Promise<Answer>;
  /** Cancels all that is being said with it, waits for that, and disposes of its chats too. */
  dispose(): Promise<void>;
}

/** A model that makes vectors of texts. */
export class Embedder {
  private constructor();
  static open(source: string, options?: Opening): Promise<Embedder>;
  embed(texts: string[]): Promise<number[][]>;
  dispose(): Promise<void>;
}

export interface Segment {
  start: number;
  end: number;
  text: string;
  words: { text: string; start: number; end: number }[];
}

export type Heard =
  | { event: "begins"; seconds: number | null }
  | { event: "language"; code: string }
  | { event: "said"; segment: Segment }
  | { event: "until"; seconds: number };

export interface TranscribeOptions {
  language?: string;
  translate?: boolean;
  prompt?: string;
  words?: boolean;
  /** Beginnings of a text that Whisper keeps beside each other; 3 where it is not told. One is faster and errs a little more. */
  beams?: number;
  ask?: string;
  /** Of samples. */
  rate?: number;
  /** Told what is found; `false` cancels. */
  listener?: (event: Heard) => boolean | void;
}

/** Sound that is still being said, of one channel, as a microphone gives it. */
export class LiveSound {
  /** Of so many samples a second; 16000 where it is not told. */
  constructor(rate?: number);
  /** Adds samples between -1 and 1. Ten minutes that nobody has heard are kept, and no more. */
  push(samples: Float32Array | number[]): void;
  /** Nothing more is said. */
  finish(): void;
}

/** A speech model that writes down what is said. */
export class Transcriber {
  private constructor();
  static open(source: string, options?: Opening): Promise<Transcriber>;
  /** Leaves silence out from now on, by a small network that is fetched once. */
  leaveOutSilence(options?: Opening): Promise<void>;
  /** Writes down what is said in a file, in samples of one channel between -1 and 1, or in a sound while it is being said. */
  transcribe(
    audio: string | Float32Array | LiveSound,
    options?: TranscribeOptions,
  ): Promise<{ text: string; language: string; segments: Segment[]; duration: number; isCutOff: boolean }>;
  /** Ends the transcription that is under way. */
  stop(): void;
  dispose(): Promise<void>;
}

export type Elements =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

export type DType = "bool" | "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" | "f16" | "bf16" | "f32" | "f64";

/** A tensor: its elements row by row. f16 and bf16 are their bits, in a `Uint16Array`. */
export class Tensor {
  constructor(dtype: DType, shape: number[], data: Elements);
  readonly dtype: DType;
  readonly shape: number[];
  readonly data: any;
}

export type Argument = { name: string; kind: any };

/** A program with the state that its methods keep from run to run, as ExecuTorch's `Module`. */
export class Module {
  private constructor();
  /** Loads a program (`.pte`). */
  static load(path: string, options?: OpenOptions): Promise<Module>;
  readonly methods: { name: string; inputs: Argument[]; outputs: Argument[] }[];
  /** Runs a method. Inputs are copied. */
  execute(method: string, inputs?: (Tensor | number | bigint | boolean | null)[]): Promise<any[]>;
  forward(...inputs: (Tensor | number | bigint | boolean | null)[]): Promise<any[]>;
  /** Forgets what earlier runs have left. */
  reset(): void;
  dispose(): Promise<void>;
}
