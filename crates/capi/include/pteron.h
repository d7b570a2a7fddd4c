/*
 * Pteron: models as they are published, on the machine at hand.
 *
 * Texts are UTF-8 and end with a zero byte. Options are JSON objects with the names that the other languages have too, or NULL;
 * what is not known is refused. A function that can fail gives a status and, through its last argument unless that is NULL, an
 * error, which is NULL where all went well. What a function gives through its arguments is the caller's, who gives it back with
 * the `_free` function of its kind; where the status is not PTERON_OK, results are NULL.
 *
 * Objects may be used from any thread, by one call at a time: a second one gets PTERON_BUSY. Only `_stop` and `_dispose` are
 * for the time of a call. After `_dispose` an object gives PTERON_DISPOSED until it is freed.
 */
#ifndef PTERON_H
#define PTERON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pteron_status {
    PTERON_OK = 0,
    PTERON_NOT_FOUND = 1,         /* no such file, folder or model */
    PTERON_NOT_ENOUGH_MEMORY = 2, /* it needs more than it may have */
    PTERON_UNSUPPORTED = 3,       /* of a kind that cannot be had here */
    PTERON_DAMAGED = 4,           /* a file is not what it says, or not whole */
    PTERON_CANCELLED = 5,         /* a callback or a flag said so */
    PTERON_CONTEXT_FULL = 6,      /* the text does not fit */
    PTERON_INVALID = 7,           /* an argument makes no sense */
    PTERON_FETCH = 8,             /* it could not be fetched */
    PTERON_STORAGE = 9,           /* the file system refused */
    PTERON_RUN = 10,              /* a run failed */
    PTERON_BUSY = 11,             /* another call uses the object */
    PTERON_DISPOSED = 12,         /* the object was disposed of */
    PTERON_LISTENER = 13          /* a callback failed */
} pteron_status;

typedef struct pteron_error pteron_error;
typedef struct pteron_model pteron_model;
typedef struct pteron_chat pteron_chat;
typedef struct pteron_module pteron_module;
typedef struct pteron_values pteron_values;

/* Gets more of an answer, on the thread that asked; false ends the answer. The text ends with a zero byte too. */
typedef bool (*pteron_piece)(const char *text, size_t length, void *user);
/* Told what happens while a model is opened, as JSON with an "event", from any thread; false cancels. */
typedef bool (*pteron_progress)(const char *event, void *user);

/* The version of the library; not to be freed. */
const char *pteron_version(void);
/* What was wrong, in words; and as JSON: "kind", "reason", and the numbers of PTERON_NOT_ENOUGH_MEMORY ("needed", "limit") and
 * PTERON_CONTEXT_FULL ("tokens", "context"). Both are the error's, and are not freed themselves. */
const char *pteron_error_words(const pteron_error *error);
const char *pteron_error_json(const pteron_error *error);
void pteron_error_free(pteron_error *error);
/* Gives a text back. */
void pteron_text_free(char *text);

/* Bytes that a model would need, as JSON; nothing is fetched, converted or loaded. */
pteron_status pteron_requirements(const char *source, const char *options, char **json, pteron_error **error);

/* Opens a program, a GGUF file or a checkpoint folder by its path, or a model by its name. */
pteron_status pteron_model_open(const char *source, const char *options, pteron_progress progress, void *user,
                                pteron_model **model, pteron_error **error);
/* Whether it sees images. */
bool pteron_model_sees(pteron_model *model);
/* Cancels what is being said with it, waits for that, and disposes of its chats too. */
void pteron_model_dispose(pteron_model *model);
void pteron_model_free(pteron_model *model);

/* Answers a list of messages (JSON, with "role" and "content") once, with a list of tools (JSON) or NULL; nothing is kept. The
 * answer is JSON. */
pteron_status pteron_generate(pteron_model *model, const char *messages, const char *tools, const char *options,
                              pteron_piece piece, void *user, char **answer, pteron_error **error);

/* A conversation: "system", "history", "tools", "when_full", "answering". */
pteron_status pteron_chat_new(pteron_model *model, const char *options, pteron_chat **chat, pteron_error **error);
/* Asks something. The answer is JSON: "text", "tokens", "finish_reason", "stop", "tool_calls", "stats". */
pteron_status pteron_chat_send(pteron_chat *chat, const char *text, const char *options, pteron_piece piece, void *user,
                               char **answer, pteron_error **error);
/* Gives the model what a tool has found that it called in its last answer. */
pteron_status pteron_chat_send_result(pteron_chat *chat, const char *found, pteron_piece piece, void *user, char **answer,
                                      pteron_error **error);
/* Stops the answer that is being given, from any thread; what was said until then stays. */
void pteron_chat_stop(pteron_chat *chat);
/* Everything that was said, as JSON. */
pteron_status pteron_chat_history(pteron_chat *chat, char **json, pteron_error **error);
/* Goes back until so many turns are left. */
pteron_status pteron_chat_rewind(pteron_chat *chat, uint64_t turns, pteron_error **error);
/* Another conversation that goes on from here. */
pteron_status pteron_chat_fork(pteron_chat *chat, pteron_chat **fork, pteron_error **error);
pteron_status pteron_chat_save(pteron_chat *chat, const char *path, pteron_error **error);
pteron_status pteron_chat_restore(pteron_chat *chat, const char *path, pteron_error **error);
/* Tokens that the caches hold, and can hold; 0 where nothing says it. */
pteron_status pteron_chat_cache_state(pteron_chat *chat, uint64_t *position, uint64_t *capacity, pteron_error **error);
/* Shows the model an image, PNG or JPEG, with the next question. */
pteron_status pteron_chat_show(pteron_chat *chat, const void *image, size_t bytes, pteron_error **error);
void pteron_chat_dispose(pteron_chat *chat);
void pteron_chat_free(pteron_chat *chat);

typedef struct pteron_embedder pteron_embedder;
typedef struct pteron_transcriber pteron_transcriber;
typedef struct pteron_sound pteron_sound;

/* Opens an encoder. */
pteron_status pteron_embedder_open(const char *source, const char *options, pteron_progress progress, void *user,
                                   pteron_embedder **embedder, pteron_error **error);
/* The vector of each text of a list, both as JSON. Threads may do this at the same time. */
pteron_status pteron_embedder_embed(pteron_embedder *embedder, const char *texts, char **vectors, pteron_error **error);
void pteron_embedder_dispose(pteron_embedder *embedder);
void pteron_embedder_free(pteron_embedder *embedder);

/* Told what is found in a sound, as JSON with an "event", on the thread that asked; false cancels. */
typedef bool (*pteron_found)(const char *event, void *user);

/* Opens a speech model. */
pteron_status pteron_transcriber_open(const char *source, const char *options, pteron_progress progress, void *user,
                                      pteron_transcriber **transcriber, pteron_error **error);
/* Writes down what is said in a file or, where the path is NULL, in samples of one channel between -1 and 1. The transcript is
 * JSON: "text", "language", "segments", "duration", "is_cut_off". */
pteron_status pteron_transcriber_transcribe(pteron_transcriber *transcriber, const char *path, const float *samples, size_t count,
                                            uint32_t rate, const char *options, pteron_found found, void *user,
                                            char **transcript, pteron_error **error);
/* Leaves silence out from now on, by a small network that is fetched once. */
pteron_status pteron_transcriber_leave_out_silence(pteron_transcriber *transcriber, const char *options, pteron_error **error);
/* Ends the transcription that is under way, from any thread. */
void pteron_transcriber_stop(pteron_transcriber *transcriber);

/* Sound that is still being said, of one channel, as a microphone gives it. It is pushed in on one thread, without waiting, and
 * written down on another, which waits for it until it is finished: at every pause where silence is left out. Ten minutes that
 * nobody has heard are kept, and no more. */
pteron_status pteron_sound_new(uint32_t rate, pteron_sound **sound, pteron_error **error);
pteron_status pteron_sound_push(pteron_sound *sound, const float *samples, size_t count, pteron_error **error);
void pteron_sound_finish(pteron_sound *sound);
void pteron_sound_free(pteron_sound *sound);
pteron_status pteron_transcriber_listen(pteron_transcriber *transcriber, pteron_sound *sound, const char *options,
                                        pteron_found found, void *user, char **transcript, pteron_error **error);
void pteron_transcriber_dispose(pteron_transcriber *transcriber);
void pteron_transcriber_free(pteron_transcriber *transcriber);

/* Element types, as ExecuTorch numbers them. */
typedef enum pteron_dtype {
    PTERON_U8 = 0,
    PTERON_I8 = 1,
    PTERON_I16 = 2,
    PTERON_I32 = 3,
    PTERON_I64 = 4,
    PTERON_F16 = 5,
    PTERON_F32 = 6,
    PTERON_F64 = 7,
    PTERON_BOOL = 11,
    PTERON_BF16 = 15,
    PTERON_U16 = 27,
    PTERON_U32 = 28,
    PTERON_U64 = 29
} pteron_dtype;

typedef enum pteron_kind { PTERON_NOTHING = 0, PTERON_TENSOR = 1, PTERON_INT = 2, PTERON_DOUBLE = 3, PTERON_TRUTH = 4 } pteron_kind;

/* An argument or a result. Fields that its kind does not have are 0. */
typedef struct pteron_value {
    int32_t kind;          /* pteron_kind */
    int32_t dtype;         /* of a tensor: pteron_dtype */
    uint64_t rank;         /* of a tensor */
    const uint64_t *shape; /* of a tensor: rank sizes, outermost first */
    const void *data;      /* of a tensor: its elements, row by row */
    uint64_t bytes;        /* of a tensor */
    int64_t integer;       /* of an integer or a truth value */
    double number;         /* of a double */
} pteron_value;

/* Loads a program (.pte). */
pteron_status pteron_module_load(const char *path, const char *options, pteron_module **module, pteron_error **error);
/* What its methods take and give, as JSON. */
pteron_status pteron_module_methods(pteron_module *module, char **json, pteron_error **error);
/* Forgets what earlier runs have left. */
pteron_status pteron_module_reset(pteron_module *module, pteron_error **error);
/* Runs a method. What the inputs point to is copied. */
pteron_status pteron_module_execute(pteron_module *module, const char *method, const pteron_value *inputs, size_t count,
                                    pteron_values **outputs, pteron_error **error);
/* How many results there are, and one of them; what it points to is valid until they are freed. */
size_t pteron_values_count(const pteron_values *values);
pteron_value pteron_values_get(const pteron_values *values, size_t index);
void pteron_values_free(pteron_values *values);
void pteron_module_dispose(pteron_module *module);
void pteron_module_free(pteron_module *module);

#ifdef __cplusplus
}
#endif

#endif
