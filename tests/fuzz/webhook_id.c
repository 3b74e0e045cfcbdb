/* Webhook ids: what is read is written back alike, and what is written is read back alike. */
#include "fuzz.h"
#include "wire/webhook.h"

static void read_one(const char *text) {
    struct envelope_key key;
    char again[WEBHOOK_ID_MAX + 1];
    if (!webhook_id_parse(text, &key))
        return;
    MUST(identifier_valid(key.deployment) && identifier_valid(key.round_id));
    MUST(key.node_id >= 1 && key.node_id <= 32767 && key.nonce > 0);
    webhook_id_format(&key, again);
    MUST(strcmp(again, text) == 0);
}

static void write_one(struct fuzz *in) {
    struct envelope_key key, again;
    char *deployment = fuzz_text(in), *round_id = fuzz_text(in), text[WEBHOOK_ID_MAX + 1];
    if (identifier_valid(deployment) && identifier_valid(round_id)) {
        MUST(strlen(deployment) <= ROUND_ID_MAX && strlen(round_id) <= ROUND_ID_MAX);
        strcpy(key.deployment, deployment);
        strcpy(key.round_id, round_id);
        key.node_id = (int)(int16_t)fuzz_number(in, 2);
        key.nonce = (int64_t)fuzz_number(in, 8);
        webhook_id_format(&key, text);
        bool read = webhook_id_parse(text, &again);
        MUST(read == (key.node_id > 0 && key.nonce > 0));
        MUST(!read || (strcmp(again.deployment, deployment) == 0 && strcmp(again.round_id, round_id) == 0 &&
                       again.node_id == key.node_id && again.nonce == key.nonce));
    }
    free(deployment);
    free(round_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *text = fuzz_text(&in);
    read_one(text);
    free(text);
    write_one(&in);
    return 0;
}
