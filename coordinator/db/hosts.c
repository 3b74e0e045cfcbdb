/* The hosts of a connection string in the order in which they are tried: one that did not answer goes to the end. */
#include "db/hosts.h"

#include <stdlib.h>
#include <string.h>

static unsigned count_of(const char *list) {
    unsigned count = 1;
    for (; *list != '\0'; list++) {
        count += *list == ',';
    }
    return count;
}

static bool given(const char *list) {
    return list != NULL && list[0] != '\0';
}

/* Moves the first entry to the end. A single entry is meant for all hosts. */
static void rotate(char *list) {
    char *comma = given(list) ? strchr(list, ',') : NULL;
    if (comma == NULL) {
        return;
    }
    size_t size = strlen(list), first = (size_t)(comma - list), rest = size - first - 1;
    char *copy = malloc(first + 1);
    if (copy == NULL) {
        return; /* the order stays; no host is lost */
    }
    memcpy(copy, list, first);
    memmove(list, comma + 1, rest);
    list[rest] = ',';
    memcpy(list + rest + 1, copy, first);
    free(copy);
}

/* True when the first entry of `list` is `entry`, or says nothing. */
static bool begins_with(const char *list, const char *entry) {
    size_t size = given(list) ? strcspn(list, ",") : 0;
    return size == 0 || (entry != NULL && strlen(entry) == size && strncmp(list, entry, size) == 0);
}

bool db_hosts_learn(struct db_hosts *hosts, const PGconn *conn) {
    PQconninfoOption *options = PQconninfo((PGconn *)conn);
    if (options == NULL) {
        return false;
    }
    bool copied = true;
    for (const PQconninfoOption *option = options; option->keyword != NULL; option++) {
        char **into = strcmp(option->keyword, "host") == 0       ? &hosts->host
                      : strcmp(option->keyword, "hostaddr") == 0 ? &hosts->hostaddr
                      : strcmp(option->keyword, "port") == 0     ? &hosts->port
                                                                 : NULL;
        if (into != NULL && given(option->val)) {
            *into = strdup(option->val);
            copied = copied && *into != NULL;
        } else if (strcmp(option->keyword, "connect_timeout") == 0 && given(option->val)) {
            long seconds = strtol(option->val, NULL, 10);
            hosts->timeout_s = seconds > 0 && seconds < 3600 ? (unsigned)seconds : 0;
        }
    }
    PQconninfoFree(options);
    if (!copied) {
        db_hosts_free(hosts);
        return false;
    }
    hosts->count = count_of(given(hosts->hostaddr) ? hosts->hostaddr : given(hosts->host) ? hosts->host : "");
    return true;
}

void db_hosts_free(struct db_hosts *hosts) {
    free(hosts->host);
    free(hosts->hostaddr);
    free(hosts->port);
    *hosts = (struct db_hosts){0};
}

void db_hosts_skip(struct db_hosts *hosts, const PGconn *conn) {
    const char *host = PQhost(conn), *port = PQport(conn);
    bool found = false;
    for (unsigned i = 0; i < hosts->count && !found; i++) {
        /* libpq calls a host by its name if it has one. */
        found = begins_with(given(hosts->host) ? hosts->host : hosts->hostaddr, host) && begins_with(hosts->port, port);
        rotate(hosts->host);
        rotate(hosts->hostaddr);
        rotate(hosts->port);
    }
}
