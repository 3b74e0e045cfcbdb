/* Rows of a hostile database, and answers of hostile nodes in between: they are refused or taken, and nothing breaks.
 */
#include <utlist.h>

#include "../unit/fake_coordinator.h"
#include "base/log.h"
#include "round/courier.h"
#include "vector.h"

/* What columns hold: b boolean, 2 4 8 integers of so many bytes, t text, i an identifier, s a state, r a route, h a
 * SHA-256, p an envelope, a int8[]. */
static const char *const shapes[] = {
    [LANE_RECORD] = "8sb8",
    [LANE_RESERVE] = "82r2bs8",
    [LANE_ESCALATE] = "8sbbb",
    [LANE_SETTLE] = "8sb8",
    [LANE_RELEASE] = "8s",
    [LANE_CLAIM] =
        "8i8sbb88888224" /* 0..13 */ "4hb2b2b82b2b88p2",
    [LANE_OWNED] =
        "8i8sbb88888224" /* 0..13 */ "4hb2b2b82b2b88p2",
    [LANE_LOAD] = "82p",
    [LANE_NODES] = "42ttt",
};
enum { JOINED = LANE_STEP_COUNT, TICK, WATCH, DURABILITY, ANSWER, KINDS, SENT_MAX = 64 };
static const char *const beat_shapes[] = {"4i4", "b444ba888", "4bbb", "ttt"};

static struct ev_loop *loop;
static struct signing_keys keys;

/* In place of the HTTP client's: the requests under way, which the input answers. */
static struct {
    struct http_handler handler;
    void *context;
} sent[SENT_MAX];
static size_t sent_count;

struct http_call *http_post(struct http_client *client, const struct http_request *request,
                            const struct http_handler *handler, void *context) {
    static int call;
    (void)client;
    for (size_t i = 0; i < request->header_count; i++)
        MUST(fuzz_is_line(request->headers[i].value));
    if (sent_count == SENT_MAX)
        return NULL;
    sent[sent_count].handler = *handler;
    sent[sent_count++].context = context;
    return (struct http_call *)&call;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    log_open("fuzz", (enum log_level)(LOG_ERROR + 1));
    keys = (struct signing_keys){{vector_key(VECTOR_COORDINATOR)}, 1};
    loop = ev_loop_new(EVFLAG_AUTO);
    return 0;
}

static void set(PGresult *result, int row, int column, const void *bytes, size_t size) {
    MUST(PQsetvalue(result, row, column, (char *)(uintptr_t)bytes, (int)size) == 1);
}

/* Small numbers mostly, so that rows speak of the same rounds. */
static void set_number(struct fuzz *in, PGresult *result, int row, int column, size_t width) {
    uint8_t bytes[8] = {0}, first = fuzz_byte(in);
    if (first < 0xf0) {
        bytes[width - 1] = first;
    } else {
        for (size_t i = 0; i < width; i++)
            bytes[i] = fuzz_byte(in);
    }
    set(result, row, column, bytes, width);
}

static void set_word(struct fuzz *in, PGresult *result, int row, int column, const char *const *words, size_t count) {
    const char *word = words[fuzz_byte(in) % count];
    set(result, row, column, word, strlen(word));
}

static void set_any(struct fuzz *in, PGresult *result, int row, int column, size_t most) {
    size_t size = fuzz_byte(in);
    uint8_t *bytes;
    size = size > most ? most : size;
    bytes = fuzz_bytes(in, &size);
    set(result, row, column, bytes, size);
    free(bytes);
}

static void set_array(struct fuzz *in, PGresult *result, int row, int column) {
    struct db_array array = {0};
    const char *bytes;
    int size;
    db_array_start(&array, DB_INT8);
    for (int left = fuzz_byte(in) % 4; left > 0; left--)
        db_array_add_int8(&array, fuzz_byte(in));
    MUST(db_array_finish(&array, &bytes, &size));
    set(result, row, column, bytes, (size_t)size);
    db_array_free(&array);
}

static void set_field(struct fuzz *in, PGresult *result, int row, int column, char kind) {
    static const char *const states[] = {"open",   "complete", "stalled", "cancelled", "dead_lettered",
                                         "locked", "fenced",   "gone",    "",          "opened"};
    static const char *const routes[] = {"primary", "backup", "other"};
    static const char *const identifiers[] = {"rnd-1", "a", "", "a\r\nb: c", "x:y"};
    static const char *const texts[] = {"http://127.0.0.1/", "http://127.0.0.2/", FAKE_RECEIPT_KEY,
                                        "whid_0123456789abcdef", ""};
    static const char zeros[64];
    switch (kind) {
    case 'b':
        set_number(in, result, row, column, 1);
        break;
    case '2':
    case '4':
    case '8':
        set_number(in, result, row, column, (size_t)(kind - '0'));
        break;
    case 's':
        set_word(in, result, row, column, states, 10);
        break;
    case 'r':
        set_word(in, result, row, column, routes, 3);
        break;
    case 'i':
        set_word(in, result, row, column, identifiers, 5);
        break;
    case 't':
        set_word(in, result, row, column, texts, 5);
        break;
    case 'h':
        set(result, row, column, zeros, SHA256_BYTES);
        break;
    case 'p':
        set(result, row, column, zeros, fuzz_byte(in) % sizeof zeros);
        break;
    default:
        set_array(in, result, row, column);
    }
}

static PGresult *make_result(struct fuzz *in, const char *shape) {
    PGresAttDesc columns[40] = {0};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    uint8_t flags = fuzz_byte(in);
    int rows = flags % 4, count = (int)strlen(shape) + (flags >= 0xfe ? 1 : flags >= 0xfc ? -1 : 0);
    for (int i = 0; i < count; i++)
        columns[i] = (PGresAttDesc){.name = (char[]){"column"}, .format = 1};
    MUST(result != NULL && PQsetResultAttrs(result, count, columns) == 1);
    for (int row = 0; row < rows; row++) {
        /* The column that is another than it should be, if any. */
        int odd = fuzz_byte(in), how = odd < count ? fuzz_byte(in) : 0;
        for (int column = 0; column < count; column++) {
            if (column == odd && how % 2 == 0)
                MUST(PQsetvalue(result, row, column, NULL, -1) == 1);
            else if (column == odd)
                set_any(in, result, row, column, 200);
            else
                set_field(in, result, row, column, column < (int)strlen(shape) ? shape[column] : 't');
        }
    }
    return result;
}

static void answer_request(struct fuzz *in, struct coordinator *c) {
    struct http_answer answer = {.end = (enum http_end)(fuzz_byte(in) % 3)};
    size_t at = sent_count > 0 ? fuzz_byte(in) % sent_count : 0;
    if (sent_count == 0)
        return;
    answer.status = answer.end == HTTP_ANSWERED ? 200 + (int)fuzz_number(in, 1) * 2 : 0;
    answer.retry_after_ms = (int64_t)fuzz_byte(in) * 1000;
    char *receipt = fuzz_text(in);
    snprintf(answer.receipt, sizeof answer.receipt, "%s", receipt);
    free(receipt);
    struct http_handler handler = sent[at].handler;
    void *context = sent[at].context;
    sent[at] = sent[--sent_count];
    handler.answered(context, &answer);
    handler.closed(context);
    (void)c;
}

static void beat_reply(const PGresult *result, unsigned kind, struct coordinator *c) {
    struct joined_row joined;
    struct tick_row tick;
    struct watch_row watch;
    struct durability_row durability;
    if (kind == JOINED && worker_joined(result, &joined))
        MUST(identifier_valid(joined.deployment_id));
    if (kind == TICK && worker_tick(result, &tick)) {
        MUST(tick.fenced >= 0 && tick.stalled >= 0 && tick.dead_lettered >= 0);
        coordinator_heard_clock(c, tick.now_us);
        while (tick.failed.left > 0) {
            struct round *round = round_find(c, db_array_next(&tick.failed));
            if (round != NULL)
                round_ended_elsewhere(round);
        }
    }
    if (kind == WATCH && worker_watched(result, &watch))
        MUST(PQntuples(result) == 1);
    for (int i = 0; kind == DURABILITY && i < PQntuples(result); i++)
        if (worker_durability(result, i, &durability))
            MUST(strlen(durability.setting) + strlen(durability.value) + strlen(durability.risk) < 3000);
    (void)worker_held(result), (void)worker_left(result), (void)worker_is_joined(result);
}

/* Takes the rounds off the lists, as a batch does that asks for them. */
static void ask(struct lane *lane) {
    while (lane->settles != NULL) {
        struct round *round = lane->settles;
        DL_DELETE2(lane->settles, round, prev_settle, next_settle);
        round->prev_settle = NULL;
    }
    while (lane->escalates != NULL) {
        struct round *round = lane->escalates;
        DL_DELETE2(lane->escalates, round, prev_escalate, next_escalate);
        round->prev_escalate = NULL;
    }
}

static void lane_reply(PGresult *result, enum lane_step step, struct lane *lane) {
    lane->batch.results[step] = result;
    if (PQntuples(result) % 2 == 1) /* else rows come of what nobody has asked for */
        ask(lane);
    if (step == LANE_RECORD) { /* what has piled up is what the batch has sent */
        for (size_t i = 0; i < lane->records.count; i++)
            records_add(&lane->batch.records, &lane->records.items[i]);
        lane->records.count = 0;
    }
    if (step == LANE_LOAD) {
        lane_answer_loads(lane);
    } else if (step == LANE_NODES) {
        if (lane->work.result != NULL)
            lane_answer_nodes(lane);
    } else {
        lane_drop_work(lane);
        lane_answer(lane);
    }
    lane_clear_batch(lane);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct coordinator c = {.loop = loop, .instance = 1, .deployment_id = "demo"};
    struct round *round, *next;
    sent_count = 0;
    c.settings.keys = &keys;
    c.settings.max_rounds = 100;
    c.nodes.slots_per_endpoint = 2;
    metrics_start(&c.metrics);
    for (int i = 0; i < LANE_COUNT; i++)
        c.lanes[i].coordinator = &c;
    MUST(fake_node(&c, 1, "http://127.0.0.1/", "http://127.0.0.2/") != NULL);
    MUST(fake_node(&c, 2, "http://127.0.0.2/", NULL) != NULL);
    while (in.left > 0) {
        unsigned kind = fuzz_byte(&in) % KINDS;
        c.lanes[0].work_asked_at = coordinator_time(&c);
        if (kind == ANSWER) {
            answer_request(&in, &c);
        } else if (kind >= JOINED) {
            PGresult *result = make_result(&in, beat_shapes[kind - JOINED]);
            beat_reply(result, kind, &c);
            PQclear(result);
        } else if (kind != LANE_GREET) {
            lane_reply(make_result(&in, shapes[kind]), (enum lane_step)kind, &c.lanes[0]);
        }
    }
    courier_free_parcels(&c);
    c.nodes.closed = true;
    HASH_ITER(hh, c.rounds, round, next) {
        round_drop(round);
    }
    for (int i = 0; i < LANE_COUNT; i++)
        lane_free(&c.lanes[i]);
    node_book_free(&c.nodes);
    return 0;
}
