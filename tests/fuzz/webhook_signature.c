/* Request signatures, v1a and v1: a header verifies only if the one signature of this id, time and body stands in it.
 */
#include "vector.h"

static struct secret_key *coordinator;
static struct public_key keys[2];
static struct secret_set *secrets;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    struct secret_key *other = vector_key(VECTOR_NODE);
    coordinator = vector_key(VECTOR_COORDINATOR);
    keys[0] = secret_key_public(other);
    keys[1] = secret_key_public(coordinator);
    secrets = vector_secrets();
    secret_key_free(other);
    return 0;
}

struct message {
    char *id;
    int64_t timestamp;
    uint8_t *body;
    size_t size;
};

static bool verifies(const struct message *m, const char *header, bool v1) {
    if (!v1)
        return webhook_verify(keys, 2, header, m->id, m->timestamp, m->body, m->size);
    const struct secret *secret = webhook_verify_v1(secrets, header, m->id, m->timestamp, m->body, m->size);
    MUST(secret == NULL || secret == secret_set_at(secrets, 1));
    return secret != NULL;
}

static void sign(const struct message *m, bool v1, char out[SIGNATURE_TEXT + 1]) {
    if (v1)
        webhook_sign_v1(secret_set_at(secrets, 1), m->id, m->timestamp, m->body, m->size, out);
    else
        webhook_sign(coordinator, m->id, m->timestamp, m->body, m->size, out);
}

/* The valid signature among what the input says stands before and behind it. */
static void among_others(const struct message *m, const char *others, const char *valid, bool v1) {
    size_t room = 2 * strlen(others) + strlen(valid) + 3;
    char *header = fuzz_memory(room);
    struct signature before[SIGNATURES_TRIED];
    size_t count = signatures_parse(others, v1 ? MAC_BYTES : SIGNATURE_BYTES, before);
    snprintf(header, room, "%s %s %s", others, valid, others);
    MUST(verifies(m, header, v1) == (count < SIGNATURES_TRIED));
    snprintf(header, room, "%s%sA", others, valid);
    MUST(!verifies(m, header, v1));
    free(header);
}

/* Any change in the signature, the time or the body; or none. */
static void changed(struct fuzz *in, struct message *m, const char *valid, bool v1) {
    struct signature signature;
    char text[SIGNATURE_TEXT + 1];
    MUST(signature_parse(valid, &signature));
    bool any = fuzz_mutate(in, signature.bytes, signature.size);
    any |= fuzz_mutate(in, &m->timestamp, sizeof m->timestamp);
    if (m->size > 0)
        any |= fuzz_mutate(in, &m->body[m->size - 1], 1);
    signature_format(&signature, text);
    MUST(verifies(m, text, v1) == !any);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char valid[SIGNATURE_TEXT + 1];
    bool v1 = fuzz_byte(&in) & 1;
    struct message m = {.id = fuzz_text(&in)};
    char *header = fuzz_text(&in);
    m.timestamp = (int64_t)fuzz_number(&in, sizeof m.timestamp);
    m.size = fuzz_byte(&in);
    m.body = fuzz_bytes(&in, &m.size);
    sign(&m, v1, valid);
    MUST(verifies(&m, valid, v1));
    MUST(!verifies(&m, valid, !v1));
    if (!vector_listed(header, valid)) {
        MUST(!verifies(&m, header, v1));
        among_others(&m, header, valid, v1);
    }
    changed(&in, &m, valid, v1);
    free(m.id);
    free(m.body);
    free(header);
    return 0;
}
