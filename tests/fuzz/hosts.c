/* Connection strings: any is read or refused in a line, and no host is lost from the lists when they are turned. */
#include "db/hosts.h"

#include <dlfcn.h>

#include "db/client.h"
#include "fuzz.h"

/* In place of libpq's, so that no connection is begun: what the connection was given, and which host it is at. */
static PQconninfoOption *given;
static const char *at_host, *at_port;

PQconninfoOption *PQconninfo(PGconn *conn) {
    (void)conn;
    return given;
}

void PQconninfoFree(PQconninfoOption *options) {
    static void (*real)(PQconninfoOption * options);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "PQconninfoFree");
    if (options != given)
        real(options);
}

char *PQhost(const PGconn *conn) {
    (void)conn;
    return (char *)(uintptr_t)at_host;
}

char *PQport(const PGconn *conn) {
    (void)conn;
    return (char *)(uintptr_t)at_port;
}

static uint32_t sum(const char *list) {
    uint32_t total = 0;
    for (; list != NULL && *list != '\0'; list++)
        total += (unsigned char)*list * (unsigned char)*list;
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct error err = {0};
    char *conninfo = fuzz_text(&in);
    given = NULL;
    if (!db_conninfo_check(conninfo, &err))
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text));
    free(conninfo);

    char *host = fuzz_text(&in), *hostaddr = fuzz_text(&in), *port = fuzz_text(&in), *timeout = fuzz_text(&in);
    PQconninfoOption options[] = {{.keyword = "host", .val = host},
                                  {.keyword = "user", .val = NULL},
                                  {.keyword = "hostaddr", .val = hostaddr},
                                  {.keyword = "port", .val = port},
                                  {.keyword = "connect_timeout", .val = timeout},
                                  {.keyword = NULL}};
    struct db_hosts hosts = {0};
    given = options;
    MUST(db_hosts_learn(&hosts, NULL));
    MUST(hosts.count >= 1 && hosts.timeout_s < 3600);
    for (int i = 0; i < 4; i++) {
        char *name = fuzz_text(&in), *number = fuzz_text(&in);
        at_host = name;
        at_port = number;
        db_hosts_skip(&hosts, NULL);
        MUST(sum(hosts.host) == sum(host) && sum(hosts.hostaddr) == sum(hostaddr) && sum(hosts.port) == sum(port));
        free(name);
        free(number);
    }
    db_hosts_free(&hosts);
    free(host);
    free(hostaddr);
    free(port);
    free(timeout);
    return 0;
}
