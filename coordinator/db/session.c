/* One asynchronous database connection on a libev loop: always in pipeline mode, reconnecting by itself with full
 * jitter. */
#include "db/session.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/told.h"
#include "db/hosts.h"

static const double RECONNECT_FIRST_S = 0.05, RECONNECT_MAX_S = 2.0;
/* For each address of each host; libpq's connect_timeout is of no effect on a connection made asynchronously. */
static const unsigned CONNECT_TIMEOUT_S = 5, CONNECT_TIMEOUT_MIN_S = 2;
/* A connection that breaks again and again for one reason is told no more often than this. */
static const int64_t TOLD_QUIET_US = 5000000;

/* What a role or a database may have as its defaults, and what no batch of ours must inherit: time-outs that cancel a
 * batch or end a session for ever, snapshots older than the locks that a decision is taken under, and a read-only
 * session. The first two run under the time-out that the second ends, so they look nothing up. A server that waits for
 * a lock looks now and then whether we are still there: while commits hang, each lost session would stay else, until
 * none is free.
 *
 * And a text of 4 MiB, made and thrown away: glibc gives what a batch has freed back to the kernel, and fetches it
 * again page by page for the next one, until it has seen a large piece freed (mallopt(3), M_MMAP_THRESHOLD). In a flood
 * the session that records takes a fifth less CPU for it.
 *
 * Only a connection whose process is the one that the server tells us is the server's own. Behind a pooler the next
 * transaction may run in another session, and this one be a stranger's next: nothing is set there for longer than a
 * transaction. $1: the process as the connection has it. */
static const char *const SETTINGS[] = {
    "BEGIN",
    "SET LOCAL statement_timeout = 0",
    ("SELECT d.direct, CASE WHEN d.direct THEN set_config('statement_timeout', '0', false) END"
     " FROM (SELECT pg_backend_pid() = $1::int) AS d (direct)"),
    ("SELECT d.direct, CASE WHEN d.direct THEN"
     " set_config('default_transaction_isolation', 'read committed', false) ||"
     " set_config('default_transaction_read_only', 'off', false) ||"
     " set_config('client_connection_check_interval', '1s', false) END"
     " FROM (SELECT pg_backend_pid() = $1::int) AS d (direct)"),
    ("SELECT d.direct, octet_length(repeat(' ', d.direct::int * 4194304))"
     " FROM (SELECT pg_backend_pid() = $1::int) AS d (direct)"),
    ("SELECT pg_backend_pid() = $1::int, count(set_config(s.name, '0', false)) FROM pg_catalog.pg_settings s"
     " WHERE pg_backend_pid() = $1::int AND s.name IN"
     " ('lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"),
    "COMMIT"};
enum { SETTINGS_COUNT = sizeof SETTINGS / sizeof SETTINGS[0] };

/* The same for one transaction: sent ahead of its first statement. */
static const char *const PRELUDE[] = {
    "SET transaction_isolation = 'read committed'", "SET transaction_read_only = off",
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)"};
enum { PRELUDE_COUNT = sizeof PRELUDE / sizeof PRELUDE[0] };

/* SETTLING: connected, and SETTINGS are on their way. PREPARING: and now the handler's statements. */
enum session_state { SESSION_DOWN, SESSION_CONNECTING, SESSION_SETTLING, SESSION_PREPARING, SESSION_READY };

struct db_session {
    struct ev_loop *loop;
    char *conninfo; /* NULL: the environment */
    struct db_hosts hosts;
    char application_name[64];
    char label[32];
    struct db_session_handler handler;
    void *context;
    PGconn *conn;
    enum session_state state;
    ev_io io;
    ev_timer timer; /* while down: the next try; while connecting: its time-out */
    double backoff_s;
    unsigned long losses;
    bool direct;      /* no pooler is between */
    bool prepared;    /* the server knows the handler's statements */
    bool begun;       /* a statement was sent since the last sync */
    int preludes;     /* results still to come of the PRELUDE of the transaction whose results come next */
    bool failed;      /* the transaction whose results are coming */
    char where[1100]; /* the address that is tried */
    struct told told;
    struct told warned; /* what the server warned of last */
};

static void connect_begin(struct db_session *session);

static void watch(struct db_session *session, int events) {
    int fd = PQsocket(session->conn);
    /* While connecting, the next host's socket may have the number of the last one's. */
    if (session->state == SESSION_READY && ev_is_active(&session->io) && session->io.fd == fd &&
        (session->io.events & (EV_READ | EV_WRITE)) == events) {
        return;
    }
    ev_io_stop(session->loop, &session->io);
    ev_io_set(&session->io, fd, events);
    ev_io_start(session->loop, &session->io);
}

static void timer_start(struct db_session *session, double after_s) {
    ev_timer_stop(session->loop, &session->timer);
    ev_timer_set(&session->timer, after_s, 0.);
    ev_timer_start(session->loop, &session->timer);
}

/* Closes the connection and plans the next try. */
static void drop(struct db_session *session) {
    bool was_ready = session->state == SESSION_READY;
    ev_io_stop(session->loop, &session->io);
    PQfinish(session->conn);
    session->conn = NULL;
    session->state = SESSION_DOWN;
    session->losses++;
    /* Full jitter, so that the coordinators of a restarted database do not all come back at once. */
    timer_start(session, session->backoff_s * (randombytes_random() / 4294967296.0));
    session->backoff_s = session->backoff_s * 2 < RECONNECT_MAX_S ? session->backoff_s * 2 : RECONNECT_MAX_S;
    if (was_ready) {
        session->handler.lost(session->context);
    }
}

static void connection_lost(struct db_session *session, const char *why) {
    char quoted[512 + 64], line[512];
    snprintf(line, sizeof line, "%s", why);
    if (session->conn != NULL) {
        db_hide_password(session->conn, line);
    }
    if (told_news(&session->told, line, TOLD_QUIET_US)) {
        log_event(LOG_WARN, "database_lost", "session=%s reason=%s", session->label,
                  log_quote(line, quoted, sizeof quoted));
    }
    drop(session);
}

/* What the server says beside its answers, which libpq would print as it is. The last words of a server that shuts down
 * come again as the reason of the loss. */
static void on_notice(void *context, const PGresult *result) {
    struct db_session *session = context;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool warning = severity != NULL && strcmp(severity, "WARNING") == 0;
    char quoted[512 + 64];
    if (message != NULL && (!warning || told_news(&session->warned, message, TOLD_QUIET_US))) {
        log_event(warning ? LOG_WARN : LOG_DEBUG, "database_says", "session=%s message=%s", session->label,
                  log_quote(message, quoted, sizeof quoted));
    }
}

static void connection_ready(struct db_session *session) {
    if (PQsetnonblocking(session->conn, 1) != 0 || PQenterPipelineMode(session->conn) != 1) {
        connection_lost(session, PQerrorMessage(session->conn));
        return;
    }
    char process[16];
    const char *const values[] = {process};
    snprintf(process, sizeof process, "%d", PQbackendPID(session->conn));
    session->state = SESSION_SETTLING; /* the connection's time-out runs on */
    session->prepared = false;
    bool sent = true;
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        int count = strchr(SETTINGS[i], '$') != NULL;
        sent = sent && PQsendQueryParams(session->conn, SETTINGS[i], count, NULL, values, NULL, NULL, 1) == 1;
    }
    if (!sent || PQpipelineSync(session->conn) != 1 || PQflush(session->conn) < 0) {
        connection_lost(session, PQerrorMessage(session->conn));
        return;
    }
    watch(session, EV_READ | EV_WRITE);
}

static void settled(struct db_session *session) {
    ev_timer_stop(session->loop, &session->timer);
    session->state = SESSION_READY;
    session->begun = session->failed = false;
    session->preludes = session->direct ? 0 : PRELUDE_COUNT;
    log_event(LOG_DEBUG, "database_session", "session=%s backend=%d direct=%s prepared=%s", session->label,
              PQbackendPID(session->conn), session->direct ? "yes" : "no", session->prepared ? "yes" : "no");
    session->handler.ready(session->context);
}

static void statement_name(size_t i, char name[24]) {
    snprintf(name, 24, "quorate_%zu", i);
}

/* Asks the server to prepare the handler's statements; one sync ends their answers. */
static void prepare(struct db_session *session) {
    char name[24];
    bool sent = true;
    for (size_t i = 0; session->handler.statements[i] != NULL; i++) {
        statement_name(i, name);
        sent = sent && PQsendPrepare(session->conn, name, session->handler.statements[i], 0, NULL) == 1;
    }
    session->state = SESSION_PREPARING; /* the connection's time-out runs on */
    session->prepared = true;
    if (!sent || PQpipelineSync(session->conn) != 1) {
        connection_lost(session, PQerrorMessage(session->conn)); /* else, drain's caller flushes it */
    }
}

/* Takes the answers to SETTINGS, and then those to `prepare`. The last sync makes the session ready. */
static void settling(struct db_session *session, const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    if (session->state == SESSION_PREPARING) {
        /* A function may be missing: whoever sends the statement as a text is told so, and again until it is there. */
        session->prepared = session->prepared && (status == PGRES_COMMAND_OK || status == PGRES_PIPELINE_SYNC);
        if (status == PGRES_PIPELINE_SYNC) {
            settled(session);
        }
    } else if (status == PGRES_FATAL_ERROR) {
        connection_lost(session, PQresultErrorMessage(result));
    } else if (status == PGRES_TUPLES_OK) {
        session->direct = PQntuples(result) == 1 && PQgetlength(result, 0, 0) == 1 && *PQgetvalue(result, 0, 0) == 1;
    } else if (status == PGRES_PIPELINE_SYNC && session->direct && session->handler.statements != NULL) {
        prepare(session);
    } else if (status == PGRES_PIPELINE_SYNC) {
        settled(session);
    }
}

/* A connection has proven good once a transaction of its owner has committed: to a server where each one fails or
 * hangs one connects well, again and again. */
static void transaction_ended(struct db_session *session) {
    if (!session->failed) {
        session->backoff_s = RECONNECT_FIRST_S;
        if (told_over(&session->told)) {
            log_event(LOG_INFO, "database_connected", "session=%s backend=%d direct=%s", session->label,
                      PQbackendPID(session->conn), session->direct ? "yes" : "no");
        }
    }
    session->failed = false;
}

static bool usable(const struct db_session *session) {
    return session->state >= SESSION_SETTLING;
}

/* Gives each address a time-out of its own, as libpq itself does when it may block. */
static void time_address(struct db_session *session) {
    char where[sizeof session->where];
    const char *host = PQhost(session->conn), *address = PQhostaddr(session->conn), *port = PQport(session->conn);
    snprintf(where, sizeof where, "%s%s%s%s port %s", host != NULL ? host : "", address != NULL && *address ? " (" : "",
             address != NULL ? address : "", address != NULL && *address ? ")" : "", port != NULL ? port : "");
    if (strcmp(where, session->where) != 0) {
        memcpy(session->where, where, sizeof where);
        unsigned given = session->hosts.timeout_s;
        timer_start(session, given == 0                      ? CONNECT_TIMEOUT_S
                             : given < CONNECT_TIMEOUT_MIN_S ? CONNECT_TIMEOUT_MIN_S
                                                             : given);
    }
}

static void connect_step(struct db_session *session) {
    switch (PQconnectPoll(session->conn)) {
    case PGRES_POLLING_READING:
        watch(session, EV_READ);
        time_address(session);
        break;
    case PGRES_POLLING_WRITING:
        watch(session, EV_WRITE);
        time_address(session);
        break;
    case PGRES_POLLING_OK:
        connection_ready(session);
        break;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE: /* never returned */
    default:
        connection_lost(session, PQerrorMessage(session->conn));
        break;
    }
}

/* True for a result that the handler did not ask for: one of PRELUDE's, unless it failed and with it all behind it. */
static bool of_prelude(struct db_session *session, const PGresult *result) {
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
        session->preludes = session->direct ? 0 : PRELUDE_COUNT;
        return false;
    }
    return session->preludes > 0 && session->preludes-- > 0 && PQresultStatus(result) != PGRES_FATAL_ERROR;
}

/* Hands out all complete results, then all notifications. */
static void drain(struct db_session *session) {
    PGconn *conn = session->conn;
    while (session->conn == conn && usable(session) && PQisBusy(conn) == 0) {
        PGresult *result = PQgetResult(conn);
        if (result == NULL) {
            /* The end of one statement's results, or of everything sent: the latter when the next call says so too. */
            if (PQisBusy(conn) != 0 || (result = PQgetResult(conn)) == NULL) {
                break;
            }
        }
        if (session->state != SESSION_READY) {
            settling(session, result);
            PQclear(result);
            continue;
        }
        session->failed = session->failed || PQresultStatus(result) == PGRES_FATAL_ERROR;
        if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
            transaction_ended(session);
        }
        if (of_prelude(session, result) || !session->handler.result(session->context, result)) {
            PQclear(result);
        }
    }
    while (session->conn == conn && session->state == SESSION_READY) {
        PGnotify *notification = PQnotifies(conn);
        if (notification == NULL) {
            break;
        }
        if (session->handler.notified != NULL) {
            session->handler.notified(session->context, notification->relname, notification->extra);
        }
        PQfreemem(notification);
    }
}

/* Sends what is buffered; watches for writability while some is left. */
static void flush(struct db_session *session) {
    int left = PQflush(session->conn);
    if (left < 0) {
        connection_lost(session, PQerrorMessage(session->conn));
        return;
    }
    watch(session, left > 0 ? EV_READ | EV_WRITE : EV_READ);
}

static void on_io(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop;
    struct db_session *session = watcher->data;
    if (session->state == SESSION_CONNECTING) {
        connect_step(session);
        return;
    }
    if ((events & EV_READ) != 0 && PQconsumeInput(session->conn) == 0) {
        drain(session); /* what arrived before the end still counts */
        if (usable(session)) {
            connection_lost(session, PQerrorMessage(session->conn));
        }
        return;
    }
    drain(session);
    if (usable(session)) {
        if (PQstatus(session->conn) == CONNECTION_BAD) {
            connection_lost(session, PQerrorMessage(session->conn));
            return;
        }
        flush(session);
    }
}

/* The address did not answer in time. One that did not even take the connection is given up alone: libpq goes on to
 * the next one. What takes connections and then says nothing is passed over by the next try. */
static void connect_timed_out(struct db_session *session) {
    char why[sizeof session->where + 64];
    snprintf(why, sizeof why, "no answer in time from %s", session->where);
    db_hosts_skip(&session->hosts, session->conn);
    if (session->state != SESSION_CONNECTING || PQstatus(session->conn) != CONNECTION_STARTED ||
        shutdown(PQsocket(session->conn), SHUT_RDWR) != 0) {
        connection_lost(session, why);
        return;
    }
    if (told_news(&session->told, why, TOLD_QUIET_US)) {
        char quoted[sizeof why + 64];
        log_event(LOG_WARN, "database_silent", "session=%s reason=%s", session->label,
                  log_quote(why, quoted, sizeof quoted));
    }
    connect_step(session);
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct db_session *session = watcher->data;
    if (session->state == SESSION_DOWN) {
        connect_begin(session);
    } else {
        connect_timed_out(session);
    }
}

static void connect_begin(struct db_session *session) {
    /* Later entries win: the connection string may change the first ones, nothing may change the last. */
    const struct db_hosts *hosts = &session->hosts;
    const char *keywords[DB_LIVENESS_COUNT + 7] = {0}, *values[DB_LIVENESS_COUNT + 7] = {0};
    int count = db_liveness(keywords, values);
    keywords[count] = "client_encoding";
    values[count++] = "UTF8";
    keywords[count] = "dbname";
    values[count++] = session->conninfo;
    keywords[count] = "application_name";
    values[count++] = session->application_name;
    if (hosts->count > 1) { /* in the order in which they shall be tried */
        keywords[count] = "host";
        values[count++] = hosts->host;
        keywords[count] = "hostaddr";
        values[count++] = hosts->hostaddr;
        keywords[count] = "port";
        values[count] = hosts->port;
    }
    session->conn = PQconnectStartParams(keywords, values, 1);
    session->state = SESSION_CONNECTING;
    session->where[0] = '\0';
    if (session->conn == NULL || (hosts->count == 0 && !db_hosts_learn(&session->hosts, session->conn))) {
        connection_lost(session, "out of memory");
    } else if (PQstatus(session->conn) == CONNECTION_BAD) {
        connection_lost(session, PQerrorMessage(session->conn));
    } else {
        PQsetNoticeReceiver(session->conn, on_notice, session);
        watch(session, EV_WRITE);
        time_address(session);
    }
}

struct db_session *db_session_new(struct ev_loop *loop, const char *conninfo, const char *application_name,
                                  const char *label, const struct db_session_handler *handler, void *context) {
    struct db_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return NULL;
    }
    conninfo = db_conninfo(conninfo);
    if (conninfo != NULL && (session->conninfo = strdup(conninfo)) == NULL) {
        free(session);
        return NULL;
    }
    session->loop = loop;
    session->handler = *handler;
    session->context = context;
    session->backoff_s = RECONNECT_FIRST_S;
    snprintf(session->application_name, sizeof session->application_name, "%s", application_name);
    snprintf(session->label, sizeof session->label, "%s", label);
    ev_init(&session->io, on_io);
    ev_init(&session->timer, on_timer);
    session->io.data = session;
    session->timer.data = session;
    timer_start(session, 0.); /* from the loop, so that no handler is called before the caller has the session */
    return session;
}

void db_session_free(struct db_session *session) {
    if (session == NULL) {
        return;
    }
    ev_io_stop(session->loop, &session->io);
    ev_timer_stop(session->loop, &session->timer);
    PQfinish(session->conn);
    db_hosts_free(&session->hosts);
    free(session->conninfo);
    free(session);
}

bool db_session_ready(const struct db_session *session) {
    return session->state == SESSION_READY;
}

bool db_session_direct(const struct db_session *session) {
    return session->direct;
}

/* A failed call into libpq: the loop finds the dead connection and reports it. */
static bool broken(struct db_session *session) {
    ev_feed_event(session->loop, &session->io, EV_READ);
    return false;
}

static bool send_prelude(struct db_session *session) {
    bool sent = true;
    for (int i = 0; i < PRELUDE_COUNT && !session->direct && !session->begun; i++) {
        sent = sent && PQsendQueryParams(session->conn, PRELUDE[i], 0, NULL, NULL, NULL, NULL, 1) == 1;
    }
    session->begun = true;
    return sent;
}

bool db_session_send(struct db_session *session, const char *sql, const struct db_params *params) {
    static const struct db_params none;
    const struct db_params *p = params != NULL ? params : &none;
    if (session->state != SESSION_READY) {
        return false;
    }
    int formats[DB_PARAMS_MAX];
    char name[24] = "";
    for (int i = 0; i < p->count; i++) {
        formats[i] = 1;
    }
    for (size_t i = 0; session->prepared && session->handler.statements[i] != NULL; i++) {
        if (session->handler.statements[i] == sql) {
            statement_name(i, name);
        }
    }
    bool sent = send_prelude(session);
    if (name[0] != '\0') {
        sent = sent && PQsendQueryPrepared(session->conn, name, p->count, p->values, p->sizes, formats, 1) == 1;
    } else {
        sent = sent && PQsendQueryParams(session->conn, sql, p->count, p->types, p->values, p->sizes, formats, 1) == 1;
    }
    return sent || broken(session);
}

bool db_session_sync(struct db_session *session) {
    if (session->state != SESSION_READY) {
        return false;
    }
    session->begun = false;
    if (PQpipelineSync(session->conn) != 1) {
        return broken(session);
    }
    int left = PQflush(session->conn);
    if (left < 0) {
        return broken(session);
    }
    watch(session, left > 0 ? EV_READ | EV_WRITE : EV_READ);
    return true;
}

void db_session_restart(struct db_session *session, const char *why, const char *application_name) {
    char quoted[512];
    if (application_name != NULL) {
        snprintf(session->application_name, sizeof session->application_name, "%s", application_name);
    }
    if (session->state != SESSION_DOWN) {
        log_event(LOG_DEBUG, "database_dropped", "session=%s reason=%s", session->label,
                  log_quote(why, quoted, sizeof quoted));
        drop(session);
    }
}

unsigned long db_session_losses(const struct db_session *session) {
    return session->losses;
}
