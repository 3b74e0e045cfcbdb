/* Writes one key=value line per event to stderr, each in a single write(2). */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { LINE_MAX_BYTES = 2000 };

static const char *const level_names[] = {"debug", "info", "warn", "error"};
enum { LEVEL_COUNT = sizeof level_names / sizeof level_names[0] };

/* Forced global state: every part of a program logs, and threading a logger through all of them would say nothing. */
static const char *log_program = "quorate";
static enum log_level log_threshold = LOG_INFO;

void log_open(const char *program, enum log_level level) {
    log_program = program;
    log_threshold = level;
}

bool log_level_parse(const char *text, enum log_level *level) {
    for (size_t i = 0; i < LEVEL_COUNT; i++)
        if (strcmp(level_names[i], text) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    return false;
}

/* The bytes that snprintf really left in a buffer with `room` bytes. */
static size_t stored(int wanted, size_t room) {
    if (wanted < 0)
        return 0;
    return (size_t)wanted < room ? (size_t)wanted : room - 1;
}

static size_t write_prefix(char *line, size_t size, enum log_level level, const char *event) {
    int64_t now = clock_wall_us();
    time_t seconds = (time_t)(now / 1000000);
    struct tm utc = {0};
    gmtime_r(&seconds, &utc);
    char stamp[32];
    if (strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        stamp[0] = '\0';
    return stored(snprintf(line, size, "time=%s.%03dZ level=%s program=%s event=%s", stamp, (int)(now % 1000000 / 1000),
                           level_names[level], log_program, event),
                  size);
}

static void write_line(const char *line, size_t size) {
    /* A full pipe or a closed stderr loses the line: logging never stops the work. A line is shorter than a pipe's
     * atomic write, so that it fits whenever there is room at all. */
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&room, 1, 0) == 0)
        return;
    while (write(STDERR_FILENO, line, size) < 0 && errno == EINTR) {
    }
}

void log_event(enum log_level level, const char *event, const char *fields, ...) {
    if (level < log_threshold)
        return;
    int saved_errno = errno;
    char line[LINE_MAX_BYTES + 1]; /* the final byte is snprintf's 0, whose place the newline takes at the latest */
    size_t room = sizeof line - 1; /* leaves a byte for the newline */
    size_t used = write_prefix(line, room, level, event);
    if (fields[0] != '\0' && used + 2 < room) {
        line[used++] = ' ';
        va_list args;
        va_start(args, fields);
        used += stored(vsnprintf(line + used, room - used, fields, args), room - used);
        va_end(args);
    }
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[used++] = '\n';
    write_line(line, used);
    errno = saved_errno;
}

static bool is_bare(const char *text) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@+-";
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

/* One character as it stands between double quotes; the number of bytes written into out[5]. */
static size_t escape(unsigned char c, char out[5]) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *found = c != '\0' ? strchr(plain, c) : NULL;
    if (found != NULL) {
        out[0] = '\\';
        out[1] = letters[found - plain];
        return 2;
    }
    if (c < 0x20 || c == 0x7f) {
        memcpy(out, (const char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
        return 4;
    }
    out[0] = (char)c;
    return 1;
}

const char *log_quote(const char *text, char *out, size_t out_size) {
    if (text == NULL)
        text = "";
    if (out_size < 3) { /* not even room for a pair of quotes */
        if (out_size > 0)
            out[0] = '\0';
        return out;
    }
    if (is_bare(text)) {
        snprintf(out, out_size, "%s", text);
        return out;
    }
    size_t used = 0, room = out_size - 2; /* for the closing quote and the 0 */
    out[used++] = '"';
    for (; *text != '\0'; text++) {
        char piece[5];
        size_t size = escape((unsigned char)*text, piece);
        if (used + size > room)
            break;
        memcpy(out + used, piece, size);
        used += size;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}

bool log_changed(char *last, size_t last_size, const char *text) {
    if (last_size == 0 || strncmp(last, text, last_size - 1) == 0)
        return false;
    snprintf(last, last_size, "%s", text);
    return true;
}
