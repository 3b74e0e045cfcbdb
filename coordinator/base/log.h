/* Key=value log lines on stderr, one event a line; never an envelope byte, never a key. */
#ifndef QUORATE_BASE_LOG_H
#define QUORATE_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below `level` are dropped. `program` stands in each line. Call once, before any other function here. */
void log_open(const char *program, enum log_level level);

/* Parses "debug", "info", "warn" or "error". */
bool log_level_parse(const char *text, enum log_level *level) MUST_CHECK;

/* Writes `time=2026-01-02T03:04:05.678Z level=info program=quorate event=<event> <fields>` and a newline in one
 * write(2). `fields` is a printf format of further `key=value` pairs ("" for none); pass strings through log_quote()
 * first. Control characters in the result become '?'; a line is cut at 2,000 bytes. */
void log_event(enum log_level level, const char *event, const char *fields, ...) PRINTF_LIKE(3, 4);

/* Writes `text` into `out` as a logfmt value: bare when it has only [A-Za-z0-9._:/@+-], else in double quotes with
 * escapes. Cuts to fit. Returns out. NULL becomes "". */
const char *log_quote(const char *text, char *out, size_t out_size);

/* Says a lasting condition once: true when `*last` differs from `text` (then `text` is copied into it) — so that a
 * fault that repeats a thousand times is logged once, and again only when it changes. Clear with last[0] = 0 when it
 * ends. */
bool log_changed(char *last, size_t last_size, const char *text);

#endif
