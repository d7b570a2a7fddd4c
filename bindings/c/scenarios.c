/* The scenarios of `bindings/scenarios.json` in C: `scenarios SCENARIOS MODELS HOME`. What is given is in `given.h`, which is
 * made of the same file, so that C need not read JSON. With `LIVES` behind it, what stays of so many models, and what a token takes. */
#include <pteron.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "given.h"

static const char *models, *home;
/* Of a thread's last call. */
static _Thread_local pteron_error *error;

static const char *const KINDS[] = {"none",    "NotFound", "NotEnoughMemory", "Unsupported", "Damaged", "Cancelled",
    "ContextFull",
                                    "Invalid", "Fetch",    "Storage",         "Run",         "Busy",    "Disposed",  "Listener"};

static void need(pteron_status status, const char *what) {
    if (status == PTERON_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, KINDS[status], pteron_error_words(error));
    exit(1);
}

/* A text in memory that nobody gives back: the program is short. */
static char *format(const char *pattern, ...) {
    va_list arguments, again;
    va_start(arguments, pattern);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, pattern, arguments);
    char *text = malloc((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, pattern, again);
    va_end(arguments);
    va_end(again);
    return text;
}

/* A text as JSON; what is given has no control characters. */
static char *quoted(const char *text) {
    char *out = malloc(2 * strlen(text) + 3), *to = out;
    *to++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *to++ = '\\';
        *to++ = *text;
    }
    *to++ = '"';
    *to = 0;
    return out;
}

/* The value of a key as it stands in JSON that the library wrote. */
static char *field(const char *json, const char *key) {
    const char *at = strstr(json, format("\"%s\":", key));
    if (!at) return "null";
    at += strlen(key) + 3;
    const char *end = at;
    int depth = 0;
    bool within = false;
    for (; *end; end++) {
        if (within) {
            if (*end == '\\') end++;
            else if (*end == '"') within = false;
        } else if (*end == '"') within = true;
        else if (*end == '[' || *end == '{') depth++;
        else if (*end == ']' || *end == '}') {
            if (depth-- == 0) break;
        } else if (*end == ',' && depth == 0) break;
    }
    return format("%.*s", (int)(end - at), at);
}

/* The roles of a history, as a list. */
static char *roles(pteron_chat *chat) {
    char *history, *list = "";
    need(pteron_chat_history(chat, &history, &error), "history");
    for (const char *at = history; (at = strstr(at, "\"role\":")); at++)
        list = format("%s%s%s", list, *list ? "," : "", field(at, "role"));
    return format("[%s]", list);
}

static const char *truth(bool value) { return value ? "true" : "false"; }

static void tell(const char *name, char *facts) { printf("{\"name\":\"%s\",\"facts\":{%s}}\n", name, facts); }

static char *path(const char *file) { return format("%s/%s", models, file); }

static pteron_model *talking(void) {
    pteron_model *model;
    need(pteron_model_open(path("talking.pte"), NULL, NULL, NULL, &model, &error), "open");
    return model;
}

/* A model whose answers last long enough to be interrupted. */
static pteron_model *slow(const char *backend, int context) {
    pteron_model *model;
    const char *options = format("{\"backend\":\"%s\",\"context\":%d}", backend, context);
    need(pteron_model_open(path("talking.pte"), options, NULL, NULL, &model, &error), "open");
    return model;
}

static pteron_chat *chat_of(pteron_model *model, const char *options) {
    pteron_chat *chat;
    need(pteron_chat_new(model, options, &chat, &error), "chat");
    return chat;
}

static char *ask(pteron_chat *chat, const char *text, const char *options) {
    char *answer;
    need(pteron_chat_send(chat, text, options, NULL, NULL, &answer, &error), "send");
    return answer;
}

static uint64_t turns(pteron_chat *chat) {
    char *history;
    uint64_t count = 0;
    need(pteron_chat_history(chat, &history, &error), "history");
    for (const char *at = history; (at = strstr(at, "\"assistant\"")); at++) count++;
    return count;
}

static bool watch(const char *event, void *user) {
    char **events = user;
    *events = format("%s%s%s", *events, **events ? "," : "", field(event, "event"));
    return true;
}

static bool refuse(const char *event, void *user) {
    (void)event, (void)user;
    return false;
}

static void open_(void) {
    pteron_model *model;
    char *needs, *events = "";
    need(pteron_requirements(path("talking.pte"), NULL, &needs, &error), "requirements");
    need(pteron_model_open(path("talking.pte"), NULL, watch, &events, &model, &error), "open");
    pteron_model_free(model);
    pteron_status refused = pteron_model_open(path("talking.pte"), NULL, refuse, NULL, &model, &error);
    tell("open", format("\"needs_more_than_weights\":%s,\"events\":[%s],\"refused\":\"%s\"",
                        truth(atoll(field(needs, "total")) > atoll(field(needs, "weights"))), events, KINDS[refused]));
}

static void rewind_(void) {
    const char *questions[] = GIVEN_rewind_questions;
    const char *answering = format("{\"max_tokens\":%d,\"temperature\":%d}", GIVEN_rewind_max_tokens, GIVEN_rewind_temperature);
    pteron_model *model = talking();
    pteron_chat *chat = chat_of(model, format("{\"system\":%s,\"answering\":%s}", quoted(GIVEN_rewind_system), answering)), *fork;
    char *first = ask(chat, questions[0], NULL), *second = ask(chat, questions[1], NULL);
    need(pteron_chat_rewind(chat, 1, &error), "rewind");
    char *again = ask(chat, questions[1], NULL);
    need(pteron_chat_fork(chat, &fork, &error), "fork");
    need(pteron_chat_rewind(fork, 0, &error), "rewind");
    char *file = format("%s/c.chat", home);
    need(pteron_chat_save(chat, file, &error), "save");
    pteron_chat *restored = chat_of(model, NULL);
    need(pteron_chat_restore(restored, file, &error), "restore");
    uint64_t position, capacity;
    need(pteron_chat_cache_state(chat, &position, &capacity, &error), "cache state");
    tell("rewind",
         format("\"roles\":%s,\"same_again\":%s,\"turns\":%llu,\"fork_turns\":%llu,\"restored_turns\":%llu,"
                "\"position_is_within\":%s,\"capacity\":%llu,\"answer\":%s,\"tokens\":%s",
                roles(chat), truth(!strcmp(field(second, "text"), field(again, "text"))), (unsigned long long)turns(chat),
                (unsigned long long)turns(fork), (unsigned long long)turns(restored), truth(position > 0 && position <= capacity),
                (unsigned long long)capacity, field(first, "text"), field(first, "tokens")));
    pteron_chat_free(fork);
    pteron_chat_free(restored);
    pteron_chat_free(chat);
    pteron_model_free(model);
}

static void schema(void) {
    pteron_model *model = talking();
    pteron_chat *chat = chat_of(model, NULL);
    const char *schemas[] = {GIVEN_schema_unknown, GIVEN_schema_broken};
    char *answer = ask(chat, GIVEN_schema_question, format("{\"schema\":%s,\"temperature\":0}", quoted(GIVEN_schema_schema)));
    pteron_status refused[2];
    for (int at = 0; at < 2; at++) {
        char *none;
        refused[at] = pteron_chat_send(chat, GIVEN_schema_question, format("{\"schema\":%s}", quoted(schemas[at])), NULL,
            NULL, &none, &error);
    }
    char *text = field(answer, "text");
    bool allowed = !strcmp(text, "\"\\\"yes\\\"\"") || !strcmp(text, "\"\\\"no\\\"\"");
    const char *finish = strcmp(field(answer, "finish_reason"), "\"stop\"") ? "another" : "Stop";
    tell("schema",
        format("\"answer\":%s,\"is_allowed\":%s,\"finish\":\"%s\",\"unknown\":\"%s\",\"broken\":\"%s\",\"turns\":%llu", text,
                          truth(allowed), finish, KINDS[refused[0]], KINDS[refused[1]], (unsigned long long)turns(chat)));
    pteron_model_dispose(model);
    pteron_chat_free(chat);
    pteron_model_free(model);
}

static void tools(void) {
    pteron_model *model = talking();
    const char *answering = format("{\"max_tokens\":%d,\"temperature\":0}", GIVEN_tools_max_tokens);
    pteron_chat *chat = chat_of(model, format("{\"tools\":%s,\"answering\":%s}", quoted(GIVEN_tools_tools), answering));
    char *answer = ask(chat, GIVEN_tools_question, format("{\"schema\":%s,\"temperature\":0}", quoted(GIVEN_tools_schema))),
        *found;
    char *calls = field(answer, "tool_calls");
    need(pteron_chat_send_result(chat, GIVEN_tools_result, NULL, NULL, &found, &error), "result");
    bool oslo = strstr(field(calls, "arguments"), "{\\\"city\\\":\\\"Oslo\\\"}") != NULL;
    tell("tools", format("\"call\":%s,\"city\":\"%s\",\"roles\":%s", field(calls, "name"), oslo ? "Oslo" : "another",
        roles(chat)));
    pteron_chat_free(chat);
    pteron_model_free(model);
}

static void memory(void) {
    pteron_model *model;
    pteron_status status = pteron_model_open(path("talking.pte"), format("{\"memory_limit\":%d}", GIVEN_memory_memory_limit),
        NULL, NULL, &model, &error);
    tell("memory", format("\"error\":\"%s\"", KINDS[status]));
}

static void bad_file(void) {
    const char *files[] = {"nothing.pte", "text.txt", "broken.pte"};
    pteron_status status[3];
    pteron_model *model;
    pteron_chat *chat;
    bool named = false;
    for (int at = 0; at < 3; at++) {
        status[at] = pteron_model_open(path(files[at]), NULL, NULL, NULL, &model, &error);
        if (at == 0) named = strstr(pteron_error_words(error), files[0]) != NULL;
    }
    need(pteron_model_open(path("silent.pte"), NULL, NULL, NULL, &model, &error), "open");
    pteron_status silent = pteron_chat_new(model, NULL, &chat, &error);
    tell("bad file", format("\"missing\":\"%s\",\"missing_named\":%s,\"text\":\"%s\",\"broken\":\"%s\",\"silent\":\"%s\"",
        KINDS[status[0]],
                            truth(named), KINDS[status[1]], KINDS[status[2]], KINDS[silent]));
    pteron_model_free(model);
}

/* An answer on a thread of its own, which says when its first piece has come. */
struct asking {
    pteron_chat *chat;
    const char *question;
    char *answer;
    pteron_status status;
    pthread_mutex_t lock;
    pthread_cond_t begun;
    size_t bytes;
};

static bool begins(const char *text, size_t length, void *user) {
    struct asking *asking = user;
    (void)text;
    pthread_mutex_lock(&asking->lock);
    asking->bytes += length;
    pthread_cond_signal(&asking->begun);
    pthread_mutex_unlock(&asking->lock);
    return true;
}

static void *asked(void *user) {
    struct asking *asking = user;
    asking->status = pteron_chat_send(asking->chat, asking->question, NULL, begins, asking, &asking->answer, &error);
    return NULL;
}

static pthread_t start(struct asking *asking) {
    pthread_t thread;
    pthread_mutex_init(&asking->lock, NULL);
    pthread_cond_init(&asking->begun, NULL);
    if (pthread_create(&thread, NULL, asked, asking)) exit(1);
    pthread_mutex_lock(&asking->lock);
    while (asking->bytes == 0) pthread_cond_wait(&asking->begun, &asking->lock);
    pthread_mutex_unlock(&asking->lock);
    return thread;
}

static const char *finish(const struct asking *asking) {
    if (asking->status != PTERON_OK) return KINDS[asking->status];
    return strcmp(field(asking->answer, "finish_reason"), "\"cancelled\"") ? "another" : "Cancelled";
}

static const char *const ENDLESS = "{\"answering\":{\"ignore_end\":true}}";

static void at_once(void) {
    const char *questions[] = GIVEN_at_once_questions;
    const char *options =
        format("{\"answering\":{\"max_tokens\":%d,\"temperature\":%d}}", GIVEN_at_once_max_tokens, GIVEN_at_once_temperature);
    pteron_model *model = talking();
    struct asking both[2] = {{0}, {0}};
    pthread_t threads[2];
    bool same = true;
    for (int at = 0; at < 2; at++) {
        both[at].chat = chat_of(model, options);
        both[at].question = questions[at];
        threads[at] = start(&both[at]);
    }
    for (int at = 0; at < 2; at++) {
        pthread_join(threads[at], NULL);
        need(both[at].status, "at once");
        pteron_chat *alone = chat_of(model, options);
        same = same && !strcmp(field(ask(alone, questions[at], NULL), "text"), field(both[at].answer, "text"));
        pteron_chat_free(alone);
        pteron_chat_free(both[at].chat);
    }
    pteron_model *slowly = slow(GIVEN_at_once_slow, GIVEN_at_once_context);
    struct asking busy = {.chat = chat_of(slowly, ENDLESS), .question = "Hello"};
    pthread_t thread = start(&busy);
    char *none;
    pteron_status second = pteron_chat_send(busy.chat, "Why?", NULL, NULL, NULL, &none, &error);
    pteron_chat_stop(busy.chat);
    pthread_join(thread, NULL);
    pteron_status after = pteron_chat_send(busy.chat, "Why?", "{\"max_tokens\":2}", NULL, NULL, &none, &error);
    tell("at once", format("\"same_as_alone\":%s,\"second_call\":\"%s\",\"finish\":\"%s\",\"usable_after\":%s", truth(same),
        KINDS[second],
                           finish(&busy), truth(after == PTERON_OK)));
    pteron_chat_free(busy.chat);
    pteron_model_free(slowly);
    pteron_model_free(model);
}

static void dispose(void) {
    pteron_model *model = slow(GIVEN_dispose_slow, GIVEN_dispose_context);
    struct asking asking = {.chat = chat_of(model, ENDLESS), .question = GIVEN_dispose_question};
    pthread_t thread = start(&asking);
    char *none;
    pteron_chat *other = chat_of(model, ENDLESS), *more;
    pteron_chat_dispose(asking.chat);
    pteron_status after = pteron_chat_send(asking.chat, "Hello", NULL, NULL, NULL, &none, &error);
    pthread_join(thread, NULL);
    pteron_model_dispose(model);
    pteron_status of_disposed = pteron_chat_send(other, "Hello", NULL, NULL, NULL, &none, &error);
    pteron_status gone = pteron_chat_new(model, NULL, &more, &error);
    pteron_model_dispose(model);
    pteron_chat_dispose(other);
    tell("dispose",
        format("\"first_piece\":%s,\"after\":\"%s\",\"stream\":\"%s\",\"chat_of_disposed\":\"%s\",\"model\":\"%s\",\"twice\":true",
                           truth(asking.bytes > 0), KINDS[after], finish(&asking), KINDS[of_disposed], KINDS[gone]));
    pteron_chat_free(other);
    pteron_chat_free(asking.chat);
    pteron_model_free(model);
}

static void module(void) {
    const int64_t tokens[] = GIVEN_module_tokens;
    const uint64_t shape[] = {1, sizeof tokens / sizeof *tokens};
    const pteron_value inputs[] = {
        {.kind = PTERON_TENSOR, .dtype = PTERON_I64, .rank = 2, .shape = shape, .data = tokens, .bytes = sizeof tokens},
        {.kind = PTERON_INT, .integer = GIVEN_module_position},
    };
    pteron_module *module;
    pteron_values *outputs, *none;
    need(pteron_module_load(path("silent.pte"), NULL, &module, &error), "load");
    need(pteron_module_execute(module, "forward", inputs, 2, &outputs, &error), "execute");
    pteron_value logits = pteron_values_get(outputs, 0);
    const float *scores = logits.data;
    size_t largest = 0;
    for (size_t at = 1; at < logits.bytes / sizeof *scores; at++)
        if (scores[at] > scores[largest]) largest = at;
    pteron_status few = pteron_module_execute(module, "forward", inputs, 1, &none, &error);
    pteron_status unknown = pteron_module_execute(module, "backward", NULL, 0, &none, &error);
    pteron_module_dispose(module);
    pteron_status disposed = pteron_module_execute(module, "forward", inputs, 2, &none, &error);
    tell("module",
        format("\"shape\":[%llu,%llu],\"dtype\":\"%s\",\"largest\":%zu,\"too_few\":\"%s\",\"unknown\":\"%s\",\"disposed\":\"%s\"",
                          (unsigned long long)logits.shape[0], (unsigned long long)logits.shape[1],
                          logits.dtype == PTERON_F32 ? "f32" : "another", largest, KINDS[few], KINDS[unknown], KINDS[disposed]));
    pteron_values_free(outputs);
    pteron_module_free(module);
}

/* KiB of the process in memory. */
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static bool goes_on(const char *text, size_t length, void *user) {
    (void)text, (void)length, (void)user;
    return true;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void endure(int lives) {
    const char *brief = "{\"answering\":{\"max_tokens\":8,\"temperature\":0}}";
    const char *lasting = "{\"answering\":{\"max_tokens\":200,\"temperature\":0,\"ignore_end\":true}}";
    const char *file = path("talking.pte");
    pteron_model *model;
    long early = 0;
    char *answer;
    for (int life = 1; life <= lives; life++) {
        need(pteron_model_open(file, NULL, NULL, NULL, &model, &error), "open");
        pteron_chat *chat = chat_of(model, brief);
        need(pteron_chat_send(chat, "Hello", NULL, goes_on, NULL, &answer, &error), "send");
        pteron_text_free(answer);
        pteron_chat_free(chat);
        pteron_model_free(model);
        if (life == lives / 2) early = resident();
    }
    long late = resident();
    double least = 1e9;
    need(pteron_model_open(file, NULL, NULL, NULL, &model, &error), "open");
    for (int round = 0; round < 40; round++) {
        pteron_chat *chat = chat_of(model, lasting);
        double begin = microseconds();
        need(pteron_chat_send(chat, "Hello", NULL, goes_on, NULL, &answer, &error), "send");
        double taken = microseconds() - begin;
        int tokens = 1;
        for (const char *at = field(answer, "tokens"); *at; at++) tokens += *at == ',';
        if (taken / tokens < least) least = taken / tokens;
        pteron_text_free(answer);
        pteron_chat_free(chat);
    }
    pteron_model_free(model);
    tell("endure", format("\"lives\":%d,\"early_kib\":%ld,\"late_kib\":%ld,\"token_microseconds\":%f", lives, early, late, least));
}

int main(int count, char **arguments) {
    if (count != 4 && count != 5) return 2;
    models = arguments[2];
    home = arguments[3];
    if (count == 5) {
        endure(atoi(arguments[4]));
        return 0;
    }
    open_();
    rewind_();
    schema();
    tools();
    at_once();
    memory();
    bad_file();
    dispose();
    module();
    return 0;
}
