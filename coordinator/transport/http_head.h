/* Reads a response head line by line, as it arrives, and keeps the little of it that is of use. */
#ifndef QUORATE_TRANSPORT_HTTP_HEAD_H
#define QUORATE_TRANSPORT_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

enum http_field { FIELD_RECEIPT, FIELD_RETRY_AFTER, FIELD_DATE, FIELD_COUNT };

enum http_head_state {
    HEAD_MORE,     /* go on */
    HEAD_COMPLETE, /* the empty line of a final head; whatever comes later (trailers) changes nothing */
    HEAD_WRONG,    /* no HTTP/1 status from 100 to 599, or a head above 64 KiB or 2,000 fields (all interim ones
                    * included) */
};

/* Begin with all zeros. */
struct http_head {
    enum http_head_state state;
    int status;
    size_t bytes, lines; /* lines: those of fields alone */
    int last_field;      /* 1 + the field of the line before, for folded lines; 0 when it is none of ours */
    struct {
        int seen;
        char text[256];
    } fields[FIELD_COUNT];
};

/* `line` has `size` bytes, its line end included. */
enum http_head_state http_head_line(struct http_head *head, const char *line, size_t size) MUST_CHECK;

/* A field's value without surrounding blanks; "" when it is absent, repeated, folded, has a 0 byte or is longer than
 * 255 bytes. */
const char *http_head_field(const struct http_head *head, enum http_field field);

#endif
