// The C library as functions: where it lies, what its functions take, and its errors as exceptions.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import koffi from "koffi";

const FILE = { darwin: "libpteron_c.dylib", win32: "pteron_c.dll" }[process.platform] ?? "libpteron_c.so";

function load() {
  const places = [process.env.PTERON_LIBRARY, fileURLToPath(new URL(FILE, import.meta.url))].filter(Boolean);
  const found = places.find((place) => existsSync(place));
  if (!found) throw new Error(`the library of Pteron is not here; looked for ${places.join(", ")}`);
  return koffi.load(found);
}

const library = load();

for (const name of ["error", "model", "chat", "module", "values", "embedder", "transcriber", "sound"]) koffi.opaque(`pteron_${name}`);
koffi.struct("pteron_value", {
  kind: "int32_t",
  dtype: "int32_t",
  rank: "uint64_t",
  shape: "uint64_t *",
  data: "void *",
  bytes: "uint64_t",
  integer: "int64_t",
  number: "double",
});
koffi.disposable("pteron_text", "str", library.func("void pteron_text_free(void *text)"));
// Types stay for ever: none is made while a model is used.
const listeners = {
  pteron_piece: koffi.pointer(koffi.proto("bool pteron_piece(void *text, size_t length, void *user)")),
  pteron_told: koffi.pointer(koffi.proto("bool pteron_told(const char *event, void *user)")),
};

const errorJson = library.func("const char *pteron_error_json(const pteron_error *error)");
const errorFree = library.func("void pteron_error_free(pteron_error *error)");

/** Why something could not be done: `kind` says what an app can do about it. */
export class PteronError extends Error {
  constructor({ kind, reason, ...numbers }) {
    super(reason);
    this.name = "PteronError";
    this.kind = kind;
    Object.assign(this, numbers);
  }
}

function failure(error) {
  const details = JSON.parse(errorJson(error));
  errorFree(error);
  return new PteronError(details);
}

/** A function that gives a status and, last, an error: called here, or on a thread of its own. */
function fallible(prototype) {
  const call = library.func(`int ${prototype.replace(/\)$/, ", _Out_ pteron_error **error)")}`);
  const later = promisify(call.async);
  return {
    now(...values) {
      const error = [null];
      if (call(...values, error) !== 0) throw failure(error[0]);
    },
    async later(...values) {
      const error = [null];
      if ((await later(...values, error)) !== 0) throw failure(error[0]);
    },
  };
}

/** A function that cannot fail, on a thread of its own. */
function quiet(prototype) {
  return promisify(library.func(prototype).async);
}

export const native = {
  version: library.func("const char *pteron_version()"),
  requirements: fallible("pteron_requirements(const char *source, const char *options, _Out_ pteron_text *json)"),
  modelOpen: fallible(
    "pteron_model_open(const char *source, const char *options, pteron_told *progress, void *user, _Out_ pteron_model **model)",
  ),
  modelSees: library.func("bool pteron_model_sees(pteron_model *model)"),
  modelDispose: quiet("void pteron_model_dispose(pteron_model *model)"),
  generate: fallible(
    "pteron_generate(pteron_model *model, const char *messages, const char *tools, const char *options, " +
      "pteron_piece *piece, void *user, _Out_ pteron_text *answer)",
  ),
  chatNew: fallible("pteron_chat_new(pteron_model *model, const char *options, _Out_ pteron_chat **chat)"),
  chatSend: fallible(
    "pteron_chat_send(pteron_chat *chat, const char *text, const char *options, pteron_piece *piece, void *user, " +
      "_Out_ pteron_text *answer)",
  ),
  chatSendResult: fallible(
    "pteron_chat_send_result(pteron_chat *chat, const char *found, pteron_piece *piece, void *user, _Out_ pteron_text *answer)",
  ),
  chatStop: library.func("void pteron_chat_stop(pteron_chat *chat)"),
  chatHistory: fallible("pteron_chat_history(pteron_chat *chat, _Out_ pteron_text *json)"),
  chatRewind: fallible("pteron_chat_rewind(pteron_chat *chat, uint64_t turns)"),
  chatFork: fallible("pteron_chat_fork(pteron_chat *chat, _Out_ pteron_chat **fork)"),
  chatSave: fallible("pteron_chat_save(pteron_chat *chat, const char *path)"),
  chatRestore: fallible("pteron_chat_restore(pteron_chat *chat, const char *path)"),
  chatCacheState: fallible("pteron_chat_cache_state(pteron_chat *chat, _Out_ uint64_t *position, _Out_ uint64_t *capacity)"),
  chatShow: fallible("pteron_chat_show(pteron_chat *chat, const uint8_t *image, size_t bytes)"),
  chatDispose: quiet("void pteron_chat_dispose(pteron_chat *chat)"),
  embedderOpen: fallible(
    "pteron_embedder_open(const char *source, const char *options, pteron_told *progress, void *user, " +
      "_Out_ pteron_embedder **embedder)",
  ),
  embed: fallible("pteron_embedder_embed(pteron_embedder *embedder, const char *texts, _Out_ pteron_text *vectors)"),
  embedderDispose: quiet("void pteron_embedder_dispose(pteron_embedder *embedder)"),
  transcriberOpen: fallible(
    "pteron_transcriber_open(const char *source, const char *options, pteron_told *progress, void *user, " +
      "_Out_ pteron_transcriber **transcriber)",
  ),
  transcribe: fallible(
    "pteron_transcriber_transcribe(pteron_transcriber *transcriber, const char *path, float *samples, size_t count, " +
      "uint32_t rate, const char *options, pteron_told *found, void *user, _Out_ pteron_text *transcript)",
  ),
  listen: fallible(
    "pteron_transcriber_listen(pteron_transcriber *transcriber, pteron_sound *sound, const char *options, pteron_told *found, " +
      "void *user, _Out_ pteron_text *transcript)",
  ),
  leaveOutSilence: fallible("pteron_transcriber_leave_out_silence(pteron_transcriber *transcriber, const char *options)"),
  transcriberStop: library.func("void pteron_transcriber_stop(pteron_transcriber *transcriber)"),
  soundNew: fallible("pteron_sound_new(uint32_t rate, _Out_ pteron_sound **sound)"),
  soundPush: fallible("pteron_sound_push(pteron_sound *sound, const float *samples, size_t count)"),
  soundFinish: library.func("void pteron_sound_finish(pteron_sound *sound)"),
  transcriberDispose: quiet("void pteron_transcriber_dispose(pteron_transcriber *transcriber)"),
  moduleLoad: fallible("pteron_module_load(const char *path, const char *options, _Out_ pteron_module **module)"),
  moduleMethods: fallible("pteron_module_methods(pteron_module *module, _Out_ pteron_text *json)"),
  moduleReset: fallible("pteron_module_reset(pteron_module *module)"),
  moduleExecute: fallible(
    "pteron_module_execute(pteron_module *module, const char *method, const pteron_value *inputs, size_t count, " +
      "_Out_ pteron_values **outputs)",
  ),
  moduleDispose: quiet("void pteron_module_dispose(pteron_module *module)"),
  valuesCount: library.func("size_t pteron_values_count(const pteron_values *values)"),
  valuesGet: library.func("pteron_value pteron_values_get(const pteron_values *values, size_t index)"),
  valuesFree: library.func("void pteron_values_free(pteron_values *values)"),
};

const frees = new Map(
  ["model", "chat", "module", "embedder", "transcriber", "sound"].map((kind) => [
    kind,
    library.func(`void pteron_${kind}_free(pteron_${kind} *object)`),
  ]),
);
const lost = new FinalizationRegistry(([kind, object]) => frees.get(kind)(object));

/** Gives the library's object back when nobody holds its owner any more. */
export function owned(owner, kind, object) {
  lost.register(owner, [kind, object]);
  return object;
}

/** Lets the library call a function while `during` runs. What the function throws ends that, and is the cause of its error. */
export async function listening(type, listener, during) {
  if (!listener) return during(null);
  let thrown = null;
  const told = (...values) => {
    if (thrown) return false;
    try {
      return listener(...values) !== false;
    } catch (error) {
      thrown = { error };
      return false;
    }
  };
  const callback = koffi.register(told, listeners[type]);
  try {
    const result = await during(callback);
    if (!thrown) return result;
  } catch (error) {
    if (!thrown) throw error;
  } finally {
    koffi.unregister(callback);
  }
  const reason = `the listener failed: ${thrown.error}`;
  throw Object.assign(new PteronError({ kind: "Listener", reason }), { cause: thrown.error });
}

/** Bytes at a place of the library's, copied. */
export function bytesAt(place, length) {
  const count = Number(length);
  return count === 0 ? new Uint8Array() : koffi.decode(place, "uint8_t", count);
}

/** Numbers of 64 bits at a place of the library's. */
export function numbersAt(place, length) {
  const count = Number(length);
  return count === 0 ? [] : Array.from(koffi.decode(place, "uint64_t", count), Number);
}
