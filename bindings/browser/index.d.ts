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
  | { event: "loading" };

/** What is opened: an address, a file that was chosen, or what a file holds. */
export type Source = string | URL | Blob | ArrayBuffer | ArrayBufferView;

/** How a model is opened. */
export interface OpenOptions {
  context?: number;
  /** Refuses a model that needs more bytes than this, before it is loaded. */
  memoryLimit?: number;
  backend?: "cpu" | "reference";
  precision?: "exact" | "fast";
  /** Holds the file to bounds that fit one of unknown origin. */
  untrusted?: boolean;
  /** Whether what is fetched is kept in the site's storage, and gone on with where it broke off; without, it is. */
  keep?: boolean;
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

/** What a program needs, in bytes. It is fetched for the answer, and not loaded. */
export function requirements(source: Source, options?: Opening): Promise<Requirements>;
/** The version of the library. */
export function version(): Promise<string>;
/** Files that the site keeps. */
export function stored(): Promise<{ url: string; bytes: number; isWhole: boolean }[]>;
/** Removes a file that is kept; whether there was one. */
export function remove(url: string): Promise<boolean>;

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

export interface Listening {
  listener?: Listener;
  signal?: AbortSignal;
}

/** A conversation with a model, which remembers. One answer at a time is written in it: a second one gets `Busy`. */
export class Chat {
  private constructor();
  /** Asks something. */
  send(text: string, options?: GenerateOptions & Listening): Promise<Answer>;
  /** The same, to be iterated over. */
  stream(text: string, options?: GenerateOptions): Stream;
  /** Gives the model what a tool has found that it called in its last answer. */
  sendResult(found: string, options?: Listening): Promise<Answer>;
  /** Stops the answer that is being given; what was said until then stays. */
  stop(): void;
  history(): Promise<Message[]>;
  turns(): Promise<number>;
  /** Shows the model an image with the next question: the bytes of its file, PNG or JPEG. */
  show(image: Uint8Array): Promise<void>;
  /** Goes back until so many turns are left. */
  rewind(turns: number): Promise<void>;
  /** Takes the last turn back; what was asked in it. */
  undo(): Promise<string | null>;
  /** Another conversation that goes on from here. */
  fork(): Promise<Chat>;
  /** The conversation as bytes, to be kept. */
  save(): Promise<Uint8Array>;
  /** Goes on with one that was kept; the model that it was held with, where that was another one. */
  restore(saved: Uint8Array): Promise<string | null>;
  /** Tokens that the caches hold, and can hold. */
  cacheState(): Promise<{ position: number; capacity: number | null }>;
  /** Cancels the answer that is being given, waits for its end, and gives the caches back. */
  dispose(): Promise<void>;
}

/** A model that can be talked to, in a worker of its own. */
export class Model {
  private constructor();
  /** Opens a program (`.pte`). */
  static open(source: Source, options?: Opening): Promise<Model>;
  chat(options?: ChatOptions): Promise<Chat>;
  /** Answers messages once; nothing is kept. */
  generate(
    messages: string | Message[],
    options?: GenerateOptions & Listening & { tools?: string | object[] },
  ): Promise<Answer>;
  /** What it holds, in bytes; `wasm` is all of the worker's memory. */
  memory(): Promise<{ mapped: number; packed: number; state: number; run: number; cache: number; wasm: number }>;
  /** Positions that a text may have. */
  context(): Promise<number | null>;
  /** Whether it sees images: those that `Chat.show` gives it. */
  sees(): Promise<boolean>;
  /** Cancels all that is being said with it, waits for that, and gives its memory back. */
  dispose(): Promise<void>;
}

/** A model that makes vectors of texts. */
export class Embedder {
  private constructor();
  static open(source: Source, options?: Opening): Promise<Embedder>;
  embed(texts: string[], options?: { signal?: AbortSignal }): Promise<Float32Array[]>;
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
  /** Of samples; 16000 where it is not told. */
  rate?: number;
  /** Told what was found, once all of it is: the sound is read in one piece. `false` cancels. */
  listener?: (event: Heard) => boolean | void;
  signal?: AbortSignal;
}

/** A speech model that writes down what is said. */
export class Transcriber {
  private constructor();
  static open(source: Source, options?: Opening): Promise<Transcriber>;
  /** Writes down what is said in a sound file, or in samples of one channel between -1 and 1. */
  transcribe(
    audio: Blob | ArrayBuffer | Uint8Array | Float32Array,
    options?: TranscribeOptions,
  ): Promise<{ text: string; language: string; segments: Segment[]; duration: number; isCutOff: boolean }>;
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

export type Input = Tensor | number | bigint | boolean | null;

/** A program with the state that its methods keep from run to run, as ExecuTorch's `Module`. */
export class Module {
  private constructor();
  /** Loads a program (`.pte`). */
  static load(source: Source, options?: Opening): Promise<Module>;
  readonly methods: { name: string; inputs: Argument[]; outputs: Argument[] }[];
  /** Runs a method. Inputs are copied. */
  execute(method: string, inputs?: Input[]): Promise<any[]>;
  forward(...inputs: Input[]): Promise<any[]>;
  /** Forgets what earlier runs have left. */
  reset(): Promise<void>;
  dispose(): Promise<void>;
}
