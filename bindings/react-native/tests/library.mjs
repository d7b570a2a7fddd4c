// The native side for tests: the calls of the C library through koffi, as `cpp/` makes them in an app. PTERON_LIBRARY says where
// the library lies.

import koffi from "koffi";

const library = koffi.load(process.env.PTERON_LIBRARY);
for (const kind of ["model", "chat", "error", "text"]) koffi.opaque(`pteron_${kind}`);
koffi.proto("bool pteron_piece(const uint8_t *text, size_t length, void *user)");
koffi.proto("bool pteron_progress(const char *event, void *user)");
const text = library.func("void pteron_text_free(void *text)");
const errorJson = library.func("const char *pteron_error_json(void *error)");
const errorFree = library.func("void pteron_error_free(void *error)");

const declared = (signature) => library.func(`int ${signature}`);
const functions = {
  open: declared("pteron_model_open(const char *source, const char *options, pteron_progress *progress, void *user, _Out_ void **model, _Out_ void **error)"),
  requirements: declared("pteron_requirements(const char *source, const char *options, _Out_ void **json, _Out_ void **error)"),
  chat: declared("pteron_chat_new(void *model, const char *options, _Out_ void **chat, _Out_ void **error)"),
  send: declared("pteron_chat_send(void *chat, const char *text, const char *options, pteron_piece *piece, void *user, _Out_ void **answer, _Out_ void **error)"),
  sendResult: declared("pteron_chat_send_result(void *chat, const char *found, pteron_piece *piece, void *user, _Out_ void **answer, _Out_ void **error)"),
  history: declared("pteron_chat_history(void *chat, _Out_ void **json, _Out_ void **error)"),
  rewind: declared("pteron_chat_rewind(void *chat, uint64_t turns, _Out_ void **error)"),
  cacheState: declared("pteron_chat_cache_state(void *chat, _Out_ uint64_t *position, _Out_ uint64_t *capacity, _Out_ void **error)"),
};
const stopChat = library.func("void pteron_chat_stop(void *chat)");
const disposeChat = library.func("void pteron_chat_dispose(void *chat)");
const disposeModel = library.func("void pteron_model_dispose(void *model)");

/** Throws what went wrong as the library's JSON. */
function check(status, error) {
  if (status === 0) return;
  const json = errorJson(error[0]);
  errorFree(error[0]);
  throw new Error(json);
}

const later = (call, ...args) =>
  new Promise((resolve, reject) => call.async(...args, (failed, value) => (failed ? reject(failed) : resolve(value))));

async function called(call, ...args) {
  const error = [null];
  check(await later(call, ...args, error), error);
}

function taken(place) {
  const found = koffi.decode(place[0], "char", -1);
  text(place[0]);
  return found;
}

const objects = new Map();
let number = 0;
const kept = (object) => {
  objects.set(++number, object);
  return number;
};
const at = (handle) => objects.get(handle);

async function listening(type, listener, during) {
  const callback = koffi.register(listener, koffi.pointer(type));
  try {
    return await during(callback);
  } finally {
    koffi.unregister(callback);
  }
}

const answered = (call, first, rest, piece) => {
  const hear = (bytes, length) => {
    piece(new TextDecoder().decode(koffi.decode(bytes, koffi.array("uint8_t", Number(length), "Typed"))));
    return true;
  };
  return listening("pteron_piece", hear, async (callback) => {
    const answer = [null];
    await called(call, at(first), ...rest, callback, null, answer);
    return taken(answer);
  });
};

const cancelled = new Set();

export const library_ = {
  open(source, options, progress) {
    const call = ++number;
    const told = (event) => {
      progress(event);
      return !cancelled.has(call);
    };
    const model = listening("pteron_progress", told, async (callback) => {
      const model = [null];
      await called(functions.open, source, options, callback, null, model);
      return kept(model[0]);
    });
    return { call, model };
  },
  cancel: (call) => void cancelled.add(call),
  async requirements(source, options) {
    const json = [null];
    await called(functions.requirements, source, options, json);
    return taken(json);
  },
  async chat(model, options) {
    const chat = [null];
    await called(functions.chat, at(model), options, chat);
    return kept(chat[0]);
  },
  send: (chat, asked, options, piece) => answered(functions.send, chat, [asked, options], piece),
  sendResult: (chat, found, piece) => answered(functions.sendResult, chat, [found], piece),
  stop: (chat) => stopChat(at(chat)),
  async history(chat) {
    const json = [null];
    await called(functions.history, at(chat), json);
    return taken(json);
  },
  rewind: (chat, turns) => called(functions.rewind, at(chat), turns),
  cacheState(chat) {
    const [position, capacity, error] = [[0], [0], [null]];
    check(functions.cacheState(at(chat), position, capacity, error), error);
    return { position: Number(position[0]), capacity: Number(capacity[0]) };
  },
  disposeChat: (chat) => later(disposeChat, at(chat)).then(() => {}),
  disposeModel: (model) => later(disposeModel, at(model)).then(() => {}),
};
