/*
 * A conversation from C: an answer as it comes, back to the start, an error by its kind, a program on tensors.
 *
 *     cargo build --release -p pteron-capi
 *     cc crates/capi/examples/chat.c -Icrates/capi/include -Ltarget/release -lpteron_c -Wl,-rpath,target/release -o chat
 *     ./chat MODEL.pte PROGRAM.pte
 */
#include <inttypes.h>
#include <pteron.h>
#include <stdio.h>

static bool show(const char *text, size_t length, void *user) {
    size_t *total = user;
    *total += length;
    fwrite(text, 1, length, stdout);
    return true;
}

static int failed(const char *what, pteron_status status, pteron_error *error) {
    fprintf(stderr, "%s: %s (%d)\n", what, pteron_error_words(error), (int)status);
    pteron_error_free(error);
    return 1;
}

static int talk(const char *path) {
    pteron_error *error;
    pteron_model *model;
    pteron_chat *chat = NULL;
    char *answer = NULL;
    size_t bytes = 0;
    uint64_t position = 0, capacity = 0;
    pteron_status status = pteron_model_open(path, "{\"threads\": 1}", NULL, NULL, &model, &error);
    if (status != PTERON_OK) return failed("open", status, error);
    status = pteron_chat_new(model, "{\"system\": \"Be brief.\", \"answering\": {\"max_tokens\": 8}}", &chat, &error);
    if (status == PTERON_OK) status = pteron_chat_send(chat, "Why is the sky blue?", NULL, show, &bytes, &answer, &error);
    if (status == PTERON_OK) status = pteron_chat_cache_state(chat, &position, &capacity, &error);
    if (status == PTERON_OK) status = pteron_chat_rewind(chat, 0, &error);
    if (status == PTERON_OK)
        printf("\n%zu bytes, %" PRIu64 " of %" PRIu64 " tokens\n", bytes, position, capacity);
    pteron_text_free(answer);
    pteron_chat_free(chat);
    pteron_model_free(model);
    return status == PTERON_OK ? 0 : failed("chat", status, error);
}

static int execute(const char *path) {
    const int64_t tokens[] = {5, 6, 7};
    const uint64_t shape[] = {1, 3};
    const pteron_value inputs[] = {
        {.kind = PTERON_TENSOR, .dtype = PTERON_I64, .rank = 2, .shape = shape, .data = tokens, .bytes = sizeof tokens},
        {.kind = PTERON_INT, .integer = 0},
    };
    pteron_error *error;
    pteron_module *module;
    pteron_values *outputs = NULL;
    pteron_status status = pteron_module_load(path, NULL, &module, &error);
    if (status != PTERON_OK) return failed("load", status, error);
    status = pteron_module_execute(module, "forward", inputs, 2, &outputs, &error);
    if (status == PTERON_OK) {
        pteron_value logits = pteron_values_get(outputs, 0);
        const float *scores = logits.data;
        uint64_t best = 0;
        for (uint64_t at = 1; at < logits.bytes / sizeof *scores; at++)
            if (scores[at] > scores[best]) best = at;
        printf("%zu result of %" PRIu64 " dims, the largest at %" PRIu64 "\n", pteron_values_count(outputs), logits.rank, best);
    }
    pteron_values_free(outputs);
    pteron_module_free(module);
    return status == PTERON_OK ? 0 : failed("execute", status, error);
}

int main(int count, char **arguments) {
    pteron_error *error;
    pteron_model *missing;
    if (count != 3) {
        fprintf(stderr, "usage: %s MODEL.pte PROGRAM.pte\n", arguments[0]);
        return 2;
    }
    if (pteron_model_open("no/such/file.pte", NULL, NULL, NULL, &missing, &error) != PTERON_NOT_FOUND || missing != NULL) return 1;
    printf("%s\n", pteron_error_words(error));
    pteron_error_free(error);
    return talk(arguments[1]) || execute(arguments[2]);
}
