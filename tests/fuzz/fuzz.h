/* What every fuzz target shares: properties that must hold for any input, and pieces cut from the input. */
#ifndef QUORATE_TESTS_FUZZ_H
#define QUORATE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A property that is broken ends the run as a crash does. */
#define MUST(property) ((property) ? (void)0 : fuzz_broken(#property, __FILE__, __LINE__))

static inline _Noreturn void fuzz_broken(const char *property, const char *file, int line) {
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, property);
    abort();
}

/* What libFuzzer calls. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of an input. */
struct fuzz {
    const uint8_t *at;
    size_t left;
};

/* 0 when nothing is left, as for the functions below. */
static inline uint8_t fuzz_byte(struct fuzz *in) {
    return in->left > 0 ? (in->left--, *in->at++) : 0;
}

static inline uint64_t fuzz_number(struct fuzz *in, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | fuzz_byte(in);
    return value;
}

static inline void *fuzz_memory(size_t size) {
    void *memory = calloc(size > 0 ? size : 1, 1);
    MUST(memory != NULL);
    return memory;
}

/* The bytes up to the next 0 (which is taken, too) or the end, as a string in memory of exactly its size, so that
 * reading past its end is noticed. The caller frees it. */
static inline char *fuzz_text(struct fuzz *in) {
    size_t size = in->left > 0 ? strnlen((const char *)in->at, in->left) : 0;
    char *text = fuzz_memory(size + 1);
    if (size > 0)
        memcpy(text, in->at, size);
    text[size] = '\0';
    in->at += size;
    in->left -= size;
    (void)fuzz_byte(in);
    return text;
}

/* `size` bytes, or what is left, in memory of exactly their size. The caller frees them. */
static inline uint8_t *fuzz_bytes(struct fuzz *in, size_t *size) {
    *size = *size < in->left ? *size : in->left;
    uint8_t *bytes = fuzz_memory(*size);
    if (*size > 0)
        memcpy(bytes, in->at, *size);
    in->at += *size;
    in->left -= *size;
    return bytes;
}

/* All that is left. */
static inline uint8_t *fuzz_rest(struct fuzz *in, size_t *size) {
    *size = in->left;
    return fuzz_bytes(in, size);
}

/* XORs the next bytes of the input onto `bytes`; true when that changed any. */
static inline bool fuzz_mutate(struct fuzz *in, void *bytes, size_t size) {
    uint8_t changed = 0, *at = bytes;
    for (size_t i = 0; i < size; i++) {
        uint8_t mask = fuzz_byte(in);
        at[i] ^= mask;
        changed |= mask;
    }
    return changed != 0;
}

/* True for a line of text: no control character in it, but bytes above 127. */
static inline bool fuzz_is_line(const char *text) {
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

/* True when `said` repeats 20 or more characters of base64 that stand together in `secret`. */
static inline bool fuzz_repeats(const char *said, const uint8_t *secret, size_t size) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    enum { RUN = 20 };
    char run[RUN + 1] = "";
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        /* The analyzer thinks that strlen may say more than there is. */
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        bool is_base64 = secret[i] != 0 && strchr(base64, secret[i]) != NULL;
        length = is_base64 ? length + 1 : 0;
        if (length >= RUN) {
            memcpy(run, secret + i + 1 - RUN, RUN);
            if (strstr(said, run) != NULL)
                return true;
        }
    }
    return false;
}

#endif
