/* Draws a key pair and puts its secret half into a new file that survives a crash. */
#include "wire/key.h"

#include <sodium.h>
#include <string.h>

#include "wire/key_file.h"

bool key_generate(const char *path, struct public_key *key, struct error *err) {
    static const char prefix[] = "whsk_";
    enum { TEXT_ROOM = SECRET_KEY_TEXT + 1 };
    unsigned char *secret = sodium_malloc(crypto_sign_SECRETKEYBYTES);
    char *text = sodium_malloc(TEXT_ROOM);
    struct public_key drawn;
    bool good = false;
    if (secret == NULL || text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    } else if (crypto_sign_keypair(drawn.bytes, secret) != 0) {
        (void)error_set(err, EXIT_UNEXPECTED, "libsodium could not draw a key pair");
    } else {
        memcpy(text, prefix, sizeof prefix - 1);
        sodium_bin2base64(text + sizeof prefix - 1, TEXT_ROOM - (sizeof prefix - 1), secret, crypto_sign_SECRETKEYBYTES,
                          sodium_base64_VARIANT_ORIGINAL);
        text[SECRET_KEY_TEXT] = '\n'; /* in place of the final 0: the file holds one line */
        good = key_file_write("key file", path, text, TEXT_ROOM, err);
    }
    if (good)
        *key = drawn;
    sodium_free(secret); /* wipes, as for the text */
    sodium_free(text);
    return good;
}
