/**
 * What the native side gives: the C library's calls, each on a thread of its own, texts and JSON in and out. `cpp/` has it for
 * React Native; tests bring their own.
 */

/** A model or a conversation of the library. */
export type Handle = number;

/** Errors are thrown with a `message` that is the JSON of the library's error. */
export interface NativePteron {
  /** Opens a model by path or name. `progress` gets events as JSON, from the JavaScript thread. */
  open(source: string, options: string, progress: (event: string) => void): { call: number; model: Promise<Handle> };
  /** Ends an opening that is under way; the model is then never opened. */
  cancel(call: number): void;
  requirements(source: string, options: string): Promise<string>;
  chat(model: Handle, options: string): Promise<Handle>;
  /** Asks something; `piece` gets the answer as it comes. The answer is JSON. */
  send(chat: Handle, text: string, options: string, piece: (text: string) => void): Promise<string>;
  sendResult(chat: Handle, found: string, piece: (text: string) => void): Promise<string>;
  /** Ends the answer that is being given; what was said until then stays. */
  stop(chat: Handle): void;
  rewind(chat: Handle, turns: number): Promise<void>;
  history(chat: Handle): Promise<string>;
  cacheState(chat: Handle): { position: number; capacity: number };
  /** Cancels what is under way, waits for it, gives the memory back. */
  disposeChat(chat: Handle): Promise<void>;
  disposeModel(model: Handle): Promise<void>;
}

let found: NativePteron | undefined;

/** Uses something else than the native side of this package: a mock of tests, say. */
export function useNative(native: NativePteron): void {
  found = native;
}

export function native(): NativePteron {
  const global = globalThis as { __pteron?: NativePteron };
  found ??= global.__pteron;
  if (!found) {
    throw new Error("react-native-pteron: the native library is not installed; import the package from an app that was built with it");
  }
  return found;
}
