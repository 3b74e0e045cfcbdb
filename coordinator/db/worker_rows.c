/* The rows of schema quorate_worker, decoded from binary results. */
#include <string.h>

#include "db/worker.h"

static uint64_t number(const PGresult *result, int row, int column) {
    const unsigned char *at = (const unsigned char *)PQgetvalue(result, row, column);
    uint64_t value = 0;
    for (int i = 0, size = PQgetlength(result, row, column); i < size && i < 8; i++) {
        value = value << 8 | at[i];
    }
    return value;
}

static int64_t get_int8(const PGresult *result, int row, int column) {
    return (int64_t)number(result, row, column);
}

static int32_t get_int4(const PGresult *result, int row, int column) {
    return (int32_t)(uint32_t)number(result, row, column);
}

static int16_t get_int2(const PGresult *result, int row, int column) {
    return (int16_t)(uint16_t)number(result, row, column);
}

static bool get_bool(const PGresult *result, int row, int column) {
    return number(result, row, column) != 0;
}

static const char *get_text(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

static bool get_state(const PGresult *result, int row, int column, enum round_state *state) {
    static const char *const MORE[] = {"locked", "fenced", "gone"};
    const char *text = PQgetvalue(result, row, column);
    for (int i = 0; i < ROUND_STATE_COUNT; i++) {
        if (strcmp(text, round_state_name((enum round_state)i)) == 0) {
            *state = (enum round_state)i;
            return true;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, MORE[i]) == 0) {
            *state = (enum round_state)(ROUND_LOCKED + i);
            return true;
        }
    }
    return false;
}

/* The database is believed in what it decides, not in what can be seen to be wrong: every column of a row has its size
 * and its range, or the row is refused. A letter stands for each column:
 *   b boolean    2 4 8 an integer of so many bytes    n one of 4 bytes, not negative
 *   c the clock, from 1970 to 9999    d a time left or past, no longer than that
 *   t text    o text or null    i an identifier    x bytes
 * Numbers and bytes may be null, which reads as 0 and as nothing. */
static bool is_shaped(const PGresult *result, int row, int column, char letter) {
    static const int64_t last_us = INT64_C(253402300799) * 1000000;
    const char *value = PQgetvalue(result, row, column);
    int size = PQgetlength(result, row, column);
    if (PQgetisnull(result, row, column)) {
        return letter != 't' && letter != 'i';
    }
    switch (letter) {
    case 'b':
        return size == 1;
    case '2':
    case '4':
    case '8':
        return size == letter - '0';
    case 'n':
        return size == 4 && get_int4(result, row, column) >= 0;
    case 'c':
        return size == 8 && get_int8(result, row, column) >= 0 && get_int8(result, row, column) <= last_us;
    case 'd':
        return size == 8 && get_int8(result, row, column) >= -last_us && get_int8(result, row, column) <= last_us;
    case 't':
    case 'o':
        return strlen(value) == (size_t)size;
    case 'i':
        return strlen(value) == (size_t)size && identifier_valid(value);
    default:
        return true;
    }
}

static bool is_row(const PGresult *result, int row, const char *shape) {
    if (row >= PQntuples(result) || PQnfields(result) != (int)strlen(shape)) {
        return false;
    }
    for (int column = 0; shape[column] != '\0'; column++) {
        if (!is_shaped(result, row, column, shape[column])) {
            return false;
        }
    }
    return true;
}

static bool is_one_row(const PGresult *result, const char *shape) {
    return PQntuples(result) == 1 && is_row(result, 0, shape);
}

bool worker_joined(const PGresult *result, struct joined_row *out) {
    if (!is_one_row(result, "4i4")) {
        return false;
    }
    out->instance = get_int4(result, 0, 0);
    strcpy(out->deployment_id, PQgetvalue(result, 0, 1));
    out->schema_version = get_int4(result, 0, 2);
    return true;
}

bool worker_tick(const PGresult *result, struct tick_row *out) {
    if (!is_one_row(result, "bnnnbxdc8")) {
        return false;
    }
    *out = (struct tick_row){.alive = get_bool(result, 0, 0),
                             .stalled = get_int4(result, 0, 1),
                             .dead_lettered = get_int4(result, 0, 2),
                             .fenced = get_int4(result, 0, 3),
                             .work = get_bool(result, 0, 4),
                             .next_due_us = PQgetisnull(result, 0, 6) ? -1 : get_int8(result, 0, 6),
                             .now_us = get_int8(result, 0, 7),
                             .owned = PQgetisnull(result, 0, 8) ? -1 : get_int8(result, 0, 8)};
    return PQgetisnull(result, 0, 5) ||
           db_array_read(&out->failed, PQgetvalue(result, 0, 5), (size_t)PQgetlength(result, 0, 5));
}

bool worker_node_version(const PGresult *result, int row, struct node_version_row *out) {
    if (!is_row(result, row, "42tot")) {
        return false;
    }
    *out = (struct node_version_row){.version = get_int4(result, row, 0),
                                     .node_id = get_int2(result, row, 1),
                                     .url = get_text(result, row, 2),
                                     .backup_url = get_text(result, row, 3),
                                     .receipt_key = get_text(result, row, 4)};
    return true;
}

bool worker_held(const PGresult *result) {
    return is_one_row(result, "b") && get_bool(result, 0, 0);
}

bool worker_watched(const PGresult *result, struct watch_row *out) {
    if (!is_one_row(result, "4bbb")) {
        return false;
    }
    *out = (struct watch_row){.peer = get_int4(result, 0, 0),
                              .seen = get_bool(result, 0, 1),
                              .free = get_bool(result, 0, 2),
                              .fenced = get_bool(result, 0, 3)};
    return true;
}

bool worker_chained(const PGresult *result, struct chain_row *out) {
    if (PQntuples(result) != 1 || PQnfields(result) != 7) {
        return false;
    }
    bool peer = PQgetisnull(result, 0, 2);
    *out = (struct chain_row){.chained = peer ? -1 : get_int4(result, 0, 0),
                              .more = get_bool(result, 0, 1),
                              .seq = get_int8(result, 0, 2),
                              .now_us = get_int8(result, 0, 4),
                              .unsigned_entries = get_int8(result, 0, 5),
                              .unsigned_us = get_int8(result, 0, 6)};
    if (!peer && PQgetlength(result, 0, 3) != SHA256_BYTES) {
        return false;
    }
    memcpy(out->hash, PQgetvalue(result, 0, 3), peer ? 0 : SHA256_BYTES);
    return true;
}

bool worker_links(const PGresult *result, struct links_row *out) {
    if (!is_one_row(result, "x") || PQgetlength(result, 0, 0) % SHA256_BYTES != 0) {
        return false;
    }
    *out = (struct links_row){.links = (const unsigned char *)PQgetvalue(result, 0, 0),
                              .count = PQgetlength(result, 0, 0) / SHA256_BYTES};
    return true;
}

bool worker_signed(const PGresult *result, struct checkpoint *out) {
    if (!is_one_row(result, "88xx")) {
        return false;
    }
    *out = (struct checkpoint){.seq = get_int8(result, 0, 0), .at_us = get_int8(result, 0, 1)};
    if (PQgetisnull(result, 0, 0)) {
        return true;
    }
    if (out->seq < 1 || PQgetlength(result, 0, 2) != SHA256_BYTES || PQgetlength(result, 0, 3) != SIGNATURE_BYTES) {
        return false;
    }
    memcpy(out->hash, PQgetvalue(result, 0, 2), SHA256_BYTES);
    memcpy(out->signature.bytes, PQgetvalue(result, 0, 3), SIGNATURE_BYTES);
    out->signature.size = SIGNATURE_BYTES;
    return true;
}

bool worker_released(const PGresult *result, int row, struct round_row *out) {
    if (!is_row(result, row, "8t")) {
        return false;
    }
    *out = (struct round_row){.round_no = get_int8(result, row, 0), .ended_after_us = -1};
    return get_state(result, row, 1, &out->state);
}

bool worker_is_joined(const PGresult *result) {
    return is_one_row(result, "b") && get_bool(result, 0, 0);
}

bool worker_durability(const PGresult *result, int row, struct durability_row *out) {
    if (!is_row(result, row, "ttt")) {
        return false;
    }
    *out = (struct durability_row){
        .setting = get_text(result, row, 0), .value = get_text(result, row, 1), .risk = get_text(result, row, 2)};
    return true;
}

bool worker_left(const PGresult *result) {
    return is_one_row(result, "b") && get_bool(result, 0, 0);
}

static void get_route(const PGresult *result, int row, int column, struct route_row *out) {
    out->used = get_int2(result, row, column);
    out->refused = get_bool(result, row, column + 1);
    out->open = get_int2(result, row, column + 2);
    out->mine = get_bool(result, row, column + 3);
    out->wait_us = get_int8(result, row, column + 4);
}

bool worker_work(const PGresult *result, int row, struct work_row *out) {
    if (!is_row(result, row, "8i8tbbddddd224nxb2b2bd2b2bdcx2")) {
        return false;
    }
    *out = (struct work_row){.round_no = get_int8(result, row, 0),
                             .round_id = get_text(result, row, 1),
                             .nonce = get_int8(result, row, 2),
                             .stop = get_bool(result, row, 4),
                             .escalated = get_bool(result, row, 5),
                             .escalate_us = get_int8(result, row, 6),
                             .deadline_us = get_int8(result, row, 7),
                             .timeout_us = get_int8(result, row, 8),
                             .base_us = get_int8(result, row, 9),
                             .max_us = get_int8(result, row, 10),
                             .retry_budget = get_int2(result, row, 11),
                             .quorum = get_int2(result, row, 29),
                             .node_id = get_int2(result, row, 12),
                             .node_version = get_int4(result, row, 13),
                             .payload_bytes = get_int4(result, row, 14),
                             .payload_sha256 = (const unsigned char *)get_text(result, row, 15),
                             .acked = get_bool(result, row, 16),
                             .now_us = get_int8(result, row, 27),
                             .payload = (const unsigned char *)get_text(result, row, 28)};
    get_route(result, row, 17, &out->route[ROUTE_PRIMARY]);
    get_route(result, row, 22, &out->route[ROUTE_BACKUP]);
    return get_state(result, row, 3, &out->state) && out->state < ROUND_STATE_COUNT &&
           (out->node_id == 0 || PQgetlength(result, row, 15) == SHA256_BYTES) &&
           (out->payload == NULL || PQgetlength(result, row, 28) == out->payload_bytes);
}

bool worker_envelope(const PGresult *result, int row, struct envelope_row *out) {
    if (!is_row(result, row, "82x")) {
        return false;
    }
    *out = (struct envelope_row){.round_no = get_int8(result, row, 0),
                                 .node_id = get_int2(result, row, 1),
                                 .payload = (const unsigned char *)PQgetvalue(result, row, 2),
                                 .payload_size = (size_t)PQgetlength(result, row, 2)};
    return true;
}

bool worker_reserved(const PGresult *result, int row, struct reserve_row *out) {
    if (!is_row(result, row, "82t2btc")) {
        return false;
    }
    *out = (struct reserve_row){.key = {.round_no = get_int8(result, row, 0),
                                        .node_id = get_int2(result, row, 1),
                                        .route = strcmp(PQgetvalue(result, row, 2), route_name(ROUTE_BACKUP)) == 0
                                                     ? ROUTE_BACKUP
                                                     : ROUTE_PRIMARY,
                                        .attempt = get_int2(result, row, 3)},
                                .granted = get_bool(result, row, 4),
                                .now_us = get_int8(result, row, 6)};
    return get_state(result, row, 5, &out->state);
}

bool worker_recorded(const PGresult *result, int row, struct round_row *out) {
    if (!is_row(result, row, "8tbd")) {
        return false;
    }
    *out = (struct round_row){.round_no = get_int8(result, row, 0),
                              .settled = get_bool(result, row, 2),
                              .ended_after_us = PQgetisnull(result, row, 3) ? -1 : get_int8(result, row, 3)};
    return get_state(result, row, 1, &out->state);
}

bool worker_escalated(const PGresult *result, int row, struct round_row *out) {
    if (!is_row(result, row, "8tbbb")) {
        return false;
    }
    *out = (struct round_row){.round_no = get_int8(result, row, 0),
                              .escalated = get_bool(result, row, 2),
                              .first = get_bool(result, row, 3),
                              .due = get_bool(result, row, 4),
                              .ended_after_us = -1};
    return get_state(result, row, 1, &out->state);
}

bool worker_settled(const PGresult *result, int row, struct round_row *out) {
    if (!is_row(result, row, "8tbd")) {
        return false;
    }
    *out = (struct round_row){.round_no = get_int8(result, row, 0),
                              .settled = get_bool(result, row, 2),
                              .ended_after_us = PQgetisnull(result, row, 3) ? -1 : get_int8(result, row, 3)};
    return get_state(result, row, 1, &out->state);
}
