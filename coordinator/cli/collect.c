/* quorate collect: waits for a round to end and prints its quorum. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/duration.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/node_keys.h"
#include "cli/output.h"
#include "db/calls.h"
#include "round/hints.h"
#include "wire/key.h"

enum {
    SECOND_US = 1000 * 1000,
    REREAD_US = SECOND_US,            /* notifications are hints: look again this often at the latest */
    RETRY_US = SECOND_US / 4,         /* between attempts to reach the database again */
    GRACE_US = 5 * SECOND_US,         /* past the deadline, for a row lock that someone holds */
    UNKNOWN_WAIT_US = 60 * SECOND_US, /* for a database that went away before it told the round's deadline */
    PAST_DEADLINE_US = 1000,          /* look just after the deadline, not just before it */
};

struct collect {
    struct common_options common;
    const char *round_id;
    int64_t quorum;
    const char *wait_text, *node_keys_file;

    int64_t wait_us;     /* -1: as long as the round's deadline */
    int64_t end;         /* of the wait, on the monotonic clock */
    int64_t deadline;    /* the round's, on the monotonic clock; INT64_MAX while not known */
    bool progress_shown; /* a line on the terminal must be cleared */
};

static const struct option_argument arguments[] = {
    {.name = "ROUND", .help = "id of the round", .offset = offsetof(struct collect, round_id)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "quorum",
     .kind = OPTION_INT,
     .argument = "T",
     .help = "the collector's own floor: refuse a round that was opened with a lower quorum (default: none)",
     .offset = offsetof(struct collect, quorum),
     .min = 1,
     .max = 255},
    {.name = "wait",
     .kind = OPTION_TEXT,
     .argument = "DURATION",
     .help = "how long to wait while the round is open; 0 asks once (default: as long as the round's deadline)",
     .offset = offsetof(struct collect, wait_text)},
    {.name = "node-keys",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "verify the receipts with these keys, a line ID = whpk_... for each, several for a node while its key "
             "changes, and refuse a round of which fewer than its quorum verify (default: believe the database)",
     .offset = offsetof(struct collect, node_keys_file)},
    COMMON_OPTIONS(struct collect),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate collect",
    .summary = "Waits for a round to end and prints the nodes that made its quorum, one a line.",
    .arguments = arguments,
    .options = options,
    .notes =
        "With --json also where each share lies. Exits with 3 when the round stalled, 4 when it is no longer fresh, "
        "8 when it is still open after the wait, 9 when it was cancelled, 1 when too few receipts verify under "
        "--node-keys. Nothing is printed to stdout then. With --node-keys only nodes whose receipts verify are "
        "printed.",
};

static bool parse_wait(struct collect *collect, struct error *err) {
    collect->wait_us = -1;
    if (!collect->wait_text)
        return true;
    if (strcmp(collect->wait_text, "0") == 0)
        collect->wait_us = 0;
    else if (!duration_parse(collect->wait_text, &collect->wait_us))
        return error_set(err, EXIT_USAGE,
                         "--wait: \"%.200s\" is no duration: write a number with a unit (us, ms, s, m, h, d), such as "
                         "500ms or 8s, or 0",
                         collect->wait_text);
    return true;
}

static void show_progress(struct collect *collect, int64_t started, int64_t now) {
    if (now - started < SECOND_US || !isatty(STDERR_FILENO))
        return;
    int64_t left = collect->deadline > now && collect->deadline != INT64_MAX ? collect->deadline - now : 0;
    fprintf(stderr, "\rround %s is open; %" PRId64 " s to its deadline \033[K", collect->round_id, left / SECOND_US);
    collect->progress_shown = true;
}

static void clear_progress(struct collect *collect) {
    if (collect->progress_shown)
        fputs("\r\033[K", stderr);
    collect->progress_shown = false;
}

/* The round may close soon, but this transaction could not see it: as good as still open. */
static bool is_passing(const char *sqlstate) {
    return strcmp(sqlstate, "55P03") == 0 || strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0;
}

/* Learns how long the round can be open at most, once. */
static bool learn_deadline(struct collect *collect, struct db_client *client, struct error *err) {
    int64_t left;
    if (collect->deadline != INT64_MAX)
        return true;
    if (!db_deadline_left(client, collect->round_id, &left, err))
        return false;
    collect->deadline = clock_monotonic_us() + left + PAST_DEADLINE_US;
    if (collect->wait_us < 0)
        collect->end = collect->deadline + GRACE_US;
    return true;
}

/* Anyone may notify: after many looks for nothing the next one waits a little, whatever hints come. */
static void pace(struct hints *hints) {
    double now = (double)clock_monotonic_us() / SECOND_US;
    hints_fruitless(hints, now);
    double wait_s = hints_wait(hints, now);
    struct timespec pause = {.tv_nsec = (long)(wait_s * 1e9)};
    if (wait_s > 0)
        nanosleep(&pause, NULL);
}

static int64_t until_next_look(const struct collect *collect, int64_t now) {
    int64_t wait = collect->end - now < REREAD_US ? collect->end - now : REREAD_US;
    if (collect->deadline > now && collect->deadline - now < wait)
        wait = collect->deadline - now;
    return wait;
}

/* Reads and waits on one connection until there is an answer, an error or the end of the wait. NULL with
 * EXIT_UNREACHABLE when the connection was lost. */
static json_t *collect_on(struct collect *collect, struct db_client *client, int64_t started, struct error *err) {
    if (!db_listen_rounds(client, err)) /* first: what ends after it is notified, what ended before is read */
        return NULL;
    struct hints hints = {0};
    for (;;) {
        char sqlstate[6] = "";
        json_t *answer = db_collect(client, collect->round_id, collect->quorum, sqlstate, err);
        if (answer && !json_is_null(json_object_get(answer, "quorum_nodes")))
            return answer;
        json_decref(answer);
        if (!answer && !is_passing(sqlstate))
            return NULL;
        if (!learn_deadline(collect, client, err))
            return NULL;

        int64_t now = clock_monotonic_us();
        if (now >= collect->end) {
            error_set(err, EXIT_STILL_OPEN, "round \"%s\" is still open", collect->round_id);
            return NULL;
        }
        show_progress(collect, started, now);
        if (!db_client_wait(client, collect->round_id, until_next_look(collect, now)) && !db_client_connected(client)) {
            error_set(err, EXIT_UNREACHABLE, "the connection to the database was lost");
            return NULL;
        }
        pace(&hints);
    }
}

static json_t *collect_round(struct collect *collect, struct error *err) {
    int64_t started = clock_monotonic_us();
    collect->deadline = INT64_MAX;
    collect->end = started + (collect->wait_us < 0 ? UNKNOWN_WAIT_US : collect->wait_us);
    bool reached = false; /* a database that never was there is not waited for */
    for (;;) {
        struct db_client *client = db_client_open(collect->common.db, err);
        db_client_needs(client, "quorate_collector");
        json_t *answer = client ? collect_on(collect, client, started, err) : NULL;
        reached = reached || client;
        db_client_close(client);
        bool again = reached && !answer && err->code == EXIT_UNREACHABLE && clock_monotonic_us() < collect->end;
        if (!again)
            return answer;
        struct timespec pause = {.tv_nsec = RETRY_US * 1000L};
        nanosleep(&pause, NULL);
    }
}

static void print_nodes(const json_t *answer) {
    const json_t *nodes = json_object_get(answer, "quorum_nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++)
        printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(json_array_get(nodes, i)));
}

/* Reads the keys first: a wrong file must not show only after a long wait. */
static json_t *collect_verified(struct collect *collect, struct error *err) {
    struct node_keys *keys = wire_start(err) ? node_keys_load(collect->node_keys_file, err) : NULL;
    if (!keys)
        return NULL;
    char left_out[800];
    json_t *answer = collect_round(collect, err);
    clear_progress(collect);
    if (answer && !node_keys_verify(keys, collect->round_id, collect->quorum, answer, left_out, sizeof left_out, err)) {
        json_decref(answer);
        answer = NULL;
    }
    if (answer && *left_out)
        fprintf(stderr, "%s: not counted: %s\n", syntax.name, left_out);
    node_keys_free(keys);
    return answer;
}

int cli_collect(int argc, char **argv) {
    struct collect collect = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &collect, &code))
        return code;
    if (!cli_round_id(collect.round_id, &err) || !parse_wait(&collect, &err))
        return cli_fail(&syntax, &err);
    json_t *answer = collect.node_keys_file ? collect_verified(&collect, &err) : collect_round(&collect, &err);
    clear_progress(&collect);
    if (!answer)
        return cli_fail(&syntax, &err);
    if (collect.common.json)
        output_json(answer);
    else
        print_nodes(answer);
    json_decref(answer);
    return EXIT_DONE;
}
