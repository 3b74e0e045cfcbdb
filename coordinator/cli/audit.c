/* quorate audit: verifies the history, exports a round's part of it, prints the newest checkpoint. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_check.h"
#include "cli/audit_verify.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/dispatch.h"
#include "cli/output.h"
#include "db/audit.h"

struct audit {
    struct common_options common;
    const char *argument; /* FILE or ROUND */
    const char *checkpoint, *output;
    struct option_list keys;
};

static const struct option_argument file_argument[] = {
    {.name = "FILE",
     .help = "what `quorate audit export` wrote; without it the database is verified",
     .offset = offsetof(struct audit, argument),
     .optional = true},
    {0},
};
static const struct option_argument round_argument[] = {
    {.name = "ROUND", .help = "id of the round", .offset = offsetof(struct audit, argument)},
    {0},
};
static const struct option_argument no_argument_at_all[] = {{0}};
static const struct option_spec verify_options[] = {
    {.name = "checkpoint",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "lines that `quorate audit checkpoint` printed and that were kept elsewhere: the history must still lead "
             "to each",
     .offset = offsetof(struct audit, checkpoint)},
    {.name = "audit-key",
     .kind = OPTION_LIST,
     .argument = "WHPK",
     .help = "public key by which checkpoints must be signed; may be given more than once (default: any key)",
     .offset = offsetof(struct audit, keys)},
    COMMON_OPTIONS(struct audit),
    {0},
};
static const struct option_spec export_options[] = {
    {.name = "output",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "where to write it; must not exist yet (default: stdout)",
     .offset = offsetof(struct audit, output)},
    COMMON_OPTIONS(struct audit),
    {0},
};
static const struct option_spec common_only[] = {COMMON_OPTIONS(struct audit), {0}};
static const struct command_syntax verify_syntax = {
    .name = "quorate audit verify",
    .summary = "Verifies the whole history of a database, or one exported file offline.",
    .arguments = file_argument,
    .options = verify_options,
    .notes =
        "Exits with 1 and names the first row that does not fit its record, its receipt or the chain. Without a "
        "checkpoint kept elsewhere, rows that were cut off at the end are not missed; without --audit-key, "
        "whoever rewrote everything may have signed it with a key of their own. With it, entries that none of "
        "the keys has signed for 10 minutes do not fit.",
};
static const struct command_syntax export_syntax = {
    .name = "quorate audit export",
    .summary = "Writes the records of a round, with all that is needed to verify them offline, as one JSON file.",
    .arguments = round_argument,
    .options = export_options,
};
static const struct command_syntax checkpoint_syntax = {
    .name = "quorate audit checkpoint",
    .summary =
        "Prints the newest checkpoint: one line, to be kept where nobody who may change the database can change it.",
    .arguments = no_argument_at_all,
    .options = common_only,
};

static void print_tally(const struct audit *audit, const struct audit_tally *tally, const struct audit_keys *keys,
                        int64_t due) {
    char key[PUBLIC_KEY_TEXT + 1] = "";
    if (tally->checkpoints > 0)
        public_key_format(&keys->seen, key);
    if (audit->common.json) {
        json_t *result =
            json_pack("{sI sI sI sI sI sI ss}", "entries", (json_int_t)tally->entries, "receipts",
                      (json_int_t)tally->receipts, "not_verifiable_by_third_parties", (json_int_t)tally->symmetric,
                      "checkpoints", (json_int_t)tally->checkpoints, "unsigned", (json_int_t)tally->unsigned_entries,
                      "due", (json_int_t)due, "audit_key", key);
        output_json(result);
        json_decref(result);
        return;
    }
    printf(
        "%zu entries fit, %zu receipts in them verify, %zu were made with symmetric secrets and prove nothing to third "
        "parties\n",
        tally->entries, tally->receipts, tally->symmetric);
    if (tally->checkpoints > 0)
        printf("checkpoints that verify: %zu, the last one signed by %s\n", tally->checkpoints, key);
    else
        puts("there is no checkpoint: nothing shows that it was not all rewritten");
    if (tally->checkpoints > 0 && tally->unsigned_entries > 0)
        printf("%zu entries after the last checkpoint are not signed yet\n", tally->unsigned_entries);
    if (due > 0)
        printf("%" PRId64 " events are not in the chain yet\n", due);
}

static int verify(int argc, char **argv) {
    struct audit audit = {0};
    struct audit_keys keys = {0};
    struct audit_tally tally = {0};
    struct error err = {0};
    int64_t due = 0;
    int code;
    if (!cli_parse(&verify_syntax, argc, argv, &audit, &code))
        return code;
    bool good = wire_start(&err) && audit_keys_parse(&keys, &audit.keys, &err);
    option_list_free(&audit.keys);
    if (good && audit.argument)
        good =
            audit.checkpoint
                ? error_set(&err, EXIT_USAGE,
                            "--checkpoint: an exported file brings its own; --audit-key says who must have signed it")
                : audit_file(audit.argument, &keys, &tally, &err);
    else if (good)
        good = audit_database(audit.common.db, audit.checkpoint, &keys, &tally, &due, &err);
    if (!good)
        return cli_fail(&verify_syntax, &err);
    print_tally(&audit, &tally, &keys, due);
    return EXIT_DONE;
}

/* Entries of the round up to the next checkpoint; *next: the first one that it does not cover. */
static json_t *piece(struct db_client *client, json_t *entries, size_t *next, struct error *err) {
    json_t *first = json_array_get(entries, *next), *steps = json_array(), *links = NULL;
    int64_t seq = json_integer_value(json_object_get(first, "seq")), upto = seq;
    json_t *before = json_incref(json_object_get(first, "before"));
    json_t *line = db_audit_checkpoint(client, seq, err);
    struct checkpoint checkpoint;
    if (line && !json_is_null(line) && checkpoint_parse(json_string_value(line), &checkpoint))
        upto = checkpoint.seq;
    else if (line)
        upto = json_integer_value(json_object_get(json_array_get(entries, json_array_size(entries) - 1), "seq"));
    if (line)
        links = db_audit_links(client, seq - 1, upto, err);
    for (size_t i = 0; links && i < json_array_size(links); i++) {
        json_t *entry = json_array_get(entries, *next);
        if (entry && json_integer_value(json_object_get(entry, "seq")) == seq + (int64_t)i) {
            json_object_del(entry, "before");
            json_array_append(steps, entry);
            ++*next;
        } else {
            json_array_append(steps, json_array_get(links, i));
        }
    }
    json_t *made = links ? json_pack("{sI sO sO sO}", "after", (json_int_t)(seq - 1), "before", before, "steps", steps,
                                     "checkpoint", line)
                         : NULL;
    json_decref(before);
    json_decref(steps);
    json_decref(links);
    json_decref(line);
    return made;
}

static json_t *export_round(struct db_client *client, const char *round_id, struct error *err) {
    json_t *status = db_audit_status(client, err), *pieces = json_array();
    json_t *entries = status ? db_audit_round(client, round_id, err) : NULL;
    bool good = entries != NULL;
    if (good && json_array_size(entries) == 0)
        good =
            error_set(err, EXIT_STILL_OPEN, "round \"%s\" has no record yet: it is open, or ended just now", round_id);
    for (size_t next = 0; good && next < json_array_size(entries);) {
        json_t *made = piece(client, entries, &next, err);
        good = made && json_array_append_new(pieces, made) == 0;
    }
    json_t *file = good ? json_pack("{ss sO ss sO}", "format", AUDIT_FORMAT, "deployment",
                                    json_object_get(status, "deployment_id"), "round_id", round_id, "pieces", pieces)
                        : NULL;
    json_decref(status);
    json_decref(entries);
    json_decref(pieces);
    return file;
}

static bool write_out(const char *path, const char *text, struct error *err) {
    FILE *out = path ? fopen(path, "wxe") : stdout;
    if (!out)
        return error_set(err, errno == EEXIST ? EXIT_REFUSED : EXIT_USAGE, "--output: \"%.300s\" cannot be written: %s",
                         path, strerror(errno));
    bool good = fprintf(out, "%s\n", text) > 0;
    good = (!path || fclose(out) == 0) && good;
    return good || error_set(err, EXIT_UNEXPECTED, "the file could not be written: %s", strerror(errno));
}

static int export(int argc, char **argv) {
    struct audit audit = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&export_syntax, argc, argv, &audit, &code))
        return code;
    if (!wire_start(&err) || !cli_round_id(audit.argument, &err))
        return cli_fail(&export_syntax, &err);
    struct db_client *client = db_client_open(audit.common.db, &err);
    db_client_needs(client, "quorate_auditor");
    json_t *file = client ? export_round(client, audit.argument, &err) : NULL;
    db_client_close(client);
    char *text = file ? audit_dump(file) : NULL;
    bool good = text && write_out(audit.output, text, &err);
    json_decref(file);
    free(text);
    if (!good && err.code == EXIT_DONE)
        error_set(&err, EXIT_UNEXPECTED, "out of memory");
    return good ? EXIT_DONE : cli_fail(&export_syntax, &err);
}

static int checkpoint(int argc, char **argv) {
    struct audit audit = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&checkpoint_syntax, argc, argv, &audit, &code))
        return code;
    struct db_client *client = db_client_open(audit.common.db, &err);
    db_client_needs(client, "quorate_auditor");
    json_t *line = client ? db_audit_checkpoint(client, 0, &err) : NULL;
    db_client_close(client);
    if (json_is_null(line)) {
        json_decref(line);
        line = NULL;
        error_set(&err, EXIT_UNKNOWN,
                  "there is no checkpoint yet: a coordinator makes them when it is run with --audit-key");
    }
    if (!line)
        return cli_fail(&checkpoint_syntax, &err);
    if (audit.common.json) {
        json_t *result = json_pack("{sO}", "checkpoint", line);
        output_json(result);
        json_decref(result);
    } else {
        puts(json_string_value(line));
    }
    json_decref(line);
    return EXIT_DONE;
}

int cli_audit(int argc, char **argv) {
    static const struct command commands[] = {
        {"verify", "verify the history of a database, or an exported file", verify},
        {"export", "write the records of a round, verifiable offline", export},
        {"checkpoint", "print the newest signature over the history", checkpoint},
        {NULL, NULL, NULL},
    };
    return dispatch("quorate audit", "Shows that the history is what it was.", commands, argc, argv);
}
