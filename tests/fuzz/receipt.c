/* Receipts: what is read is written back alike, and no receipt verifies but the one that was signed. */
#include "vector.h"

static struct secret_key *node;
static struct public_key node_public;
static struct secret_set *secrets;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    node = vector_key(VECTOR_NODE);
    node_public = secret_key_public(node);
    secrets = vector_secrets();
    return 0;
}

static bool verifies(const struct envelope_key *envelope, const unsigned char digest[SHA256_BYTES],
                     const struct signature *receipt) {
    bool v1a = receipt_verify(&node_public, envelope, digest, receipt);
    bool v1 = receipt_verify_v1(secret_set_at(secrets, 1), envelope, digest, receipt);
    MUST(!(v1a && v1));
    return v1a || v1;
}

/* A header as a node may send it. */
static void read_one(const char *text, const struct envelope_key *envelope, const unsigned char digest[SHA256_BYTES],
                     const struct signature valid[2]) {
    char again[SIGNATURE_TEXT + 1];
    struct signature read;
    if (!signature_parse(text, &read))
        return;
    MUST(read.size == SIGNATURE_BYTES || read.size == MAC_BYTES);
    signature_format(&read, again);
    MUST(strcmp(again, text) == 0);
    const struct signature *same = &valid[read.size == MAC_BYTES];
    MUST(verifies(envelope, digest, &read) == (memcmp(read.bytes, same->bytes, same->size) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct envelope_key envelope = vector_envelope();
    unsigned char digest[SHA256_BYTES];
    struct signature valid[2];
    sha256("envelope", 8, digest);
    receipt_sign(node, &envelope, digest, &valid[0]);
    receipt_sign_v1(secret_set_at(secrets, 1), &envelope, digest, &valid[1]);

    char *text = fuzz_text(&in);
    read_one(text, &envelope, digest, valid);
    free(text);

    /* The valid ones, with a change in anything that they say. */
    struct signature *receipt = &valid[fuzz_byte(&in) & 1];
    bool changed = fuzz_mutate(&in, receipt->bytes, receipt->size);
    changed |= fuzz_mutate(&in, digest, sizeof digest);
    uint16_t node_id = (uint16_t)envelope.node_id;
    changed |= fuzz_mutate(&in, &node_id, sizeof node_id);
    changed |= fuzz_mutate(&in, &envelope.nonce, sizeof envelope.nonce);
    envelope.node_id = node_id;
    uint8_t letter = fuzz_byte(&in);
    if (letter != 0) {
        envelope.round_id[1] = (char)((unsigned char)envelope.round_id[1] ^ letter);
        changed = true;
    }
    MUST(verifies(&envelope, digest, receipt) == !changed);
    return 0;
}
