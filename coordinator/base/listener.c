/* Turns HOST:PORT into a listening socket, and tells others which port it got. */
#include "base/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/options.h"

enum { BACKLOG = 1024, HOST_MAX = 255 };

static bool split(const char *text, char host[HOST_MAX + 1], const char **port) {
    const char *colon = strrchr(text, ':');
    int64_t number;
    if (!colon || !int_parse(colon + 1, 0, 65535, &number))
        return false;
    *port = colon + 1;
    bool bracketed = text[0] == '[';
    const char *begin = bracketed ? text + 1 : text;
    const char *end = bracketed ? colon - 1 : colon;
    if (end <= begin || (bracketed && *end != ']') || end - begin > HOST_MAX)
        return false;
    size_t size = (size_t)(end - begin);
    if (!bracketed && memchr(begin, ':', size))
        return false;
    memcpy(host, begin, size);
    host[size] = '\0';
    return true;
}

static int bind_to(const struct addrinfo *found) {
    int yes = 1;
    int fd = socket(found->ai_family, found->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, found->ai_protocol);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static bool describe(int fd, char address[LISTENER_ADDRESS], int *port) {
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char host[LISTENER_ADDRESS - 9], service[6];
    int64_t number;

    if (getsockname(fd, (struct sockaddr *)&bound, &size) != 0 ||
        getnameinfo((struct sockaddr *)&bound, size, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
        !int_parse(service, 1, 65535, &number))
        return false;
    *port = (int)number;
    (void)snprintf(address, LISTENER_ADDRESS, bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, service);
    return true;
}

bool listener_open(const char *option, const char *text, int *fd, char address[LISTENER_ADDRESS], int *port,
                   struct error *err) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[HOST_MAX + 1];
    const char *service;

    if (!split(text, host, &service)) {
        return error_set(err, EXIT_USAGE, "%s: \"%.200s\" must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:0", option,
                         text);
    }
    int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0) {
        return error_set(err, EXIT_USAGE, "%s: \"%.200s\": the host has no address: %s", option, text,
                         gai_strerror(code));
    }
    *fd = -1;
    for (const struct addrinfo *each = found; each && *fd < 0; each = each->ai_next)
        *fd = bind_to(each);
    int saved = errno;
    freeaddrinfo(found);
    if (*fd < 0)
        return error_set(err, EXIT_UNEXPECTED, "%s: cannot listen on %s: %s", option, text, strerror(saved));
    if (!describe(*fd, address, port)) {
        close(*fd);
        return error_set(err, EXIT_UNEXPECTED, "%s: cannot tell the address of %s", option, text);
    }
    return true;
}

bool port_file_write(const char *path, int port, struct error *err) {
    char beside[4096];
    int size = snprintf(beside, sizeof beside, "%s.%ld.new", path, (long)getpid());
    if (size < 0 || (size_t)size >= sizeof beside)
        return error_set(err, EXIT_USAGE, "--port-file: the path is too long");
    FILE *file = fopen(beside, "we");
    if (!file)
        return error_set(err, EXIT_UNEXPECTED, "--port-file %s: cannot write: %s", path, strerror(errno));
    bool written = fprintf(file, "%d\n", port) > 0;
    bool closed = fclose(file) == 0;
    if (written && closed && rename(beside, path) == 0)
        return true;
    int saved = errno;
    (void)unlink(beside);
    return error_set(err, EXIT_UNEXPECTED, "--port-file %s: cannot write: %s", path, strerror(saved));
}
