/* Hides in a text what must never be shown: passwords of connection strings and secret keys. */
#include "base/redact.h"

#include <stddef.h>
#include <string.h>

static const char stars[] = "***";
static const char *const key_prefixes[] = {"whsk_", "whsec_", "qbsk_"};

/* Puts stars in the place of `size` bytes and closes the gap; returns what follows. No byte of what was hidden, and
 * none of its length, stays in the memory of the text. */
static char *hide(char *at, size_t size) {
    size_t shown = size < sizeof stars - 1 ? size : sizeof stars - 1;
    size_t left = strlen(at + size);
    memcpy(at, stars, shown);
    memmove(at + shown, at + size, left);
    explicit_bzero(at + shown + left, size - shown);
    return at + shown;
}

/* "password = x", also as the end of sslpassword and in the query of a URI. */
static bool hide_keyword(char *text) {
    static const char keyword[] = "password";
    for (char *at = text; (at = strstr(at, keyword)) != NULL;) {
        at += sizeof keyword - 1;
        char *equals = at + strspn(at, " \t\n\v\f\r"); /* what libpq passes over */
        if (*equals == '=' && equals[1] != '\0') {
            (void)hide(equals + 1, strlen(equals + 1));
            return true;
        }
    }
    return false;
}

static bool hide_in_uri(char *text) {
    char *host = strstr(text, "://"), *colon = host != NULL ? strchr(host + 3, ':') : NULL;
    char *at = colon != NULL ? strrchr(colon, '@') : NULL;
    if (at == NULL || at == colon + 1)
        return false;
    (void)hide(colon + 1, (size_t)(at - colon - 1));
    return true;
}

static bool hide_key(char *text, const char *prefix) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-";
    bool found = false;
    for (char *at = text; (at = strstr(at, prefix)) != NULL;) {
        at += strlen(prefix);
        size_t size = strspn(at, base64);
        found = found || size > 0;
        at = hide(at, size);
    }
    return found;
}

bool redact(char *text) {
    bool keyword = hide_keyword(text), uri = hide_in_uri(text), key = false;
    for (size_t i = 0; i < sizeof key_prefixes / sizeof key_prefixes[0]; i++)
        key = hide_key(text, key_prefixes[i]) || key;
    return keyword || uri || key;
}
