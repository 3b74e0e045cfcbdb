/* Keeps what a process knows to itself: no core dumps, no other process of its user that looks into it, nothing secret
 * where the system lists what it was started with, and nothing of its log or its sessions' keys where nobody expects
 * it.
 */
#include "base/secrecy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/redact.h"

/* The limit alone does not bar a core dump that the kernel pipes into a program, and the flag alone would leave it to
 * whoever sets it again. */
static void forbid_dumps(void) {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0)
        fprintf(stderr, "quorate: warning: core dumps cannot be forbidden: %s\n", strerror(errno));
}

/* The program goes on with a copy on the heap; the original is where the system looks. */
static void hide_arguments(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *copy = strdup(argv[i]);
        if (copy != NULL && redact(argv[i]))
            argv[i] = copy;
        else
            free(copy);
    }
}

static void hide_variable(const char *name) {
    char *shown = getenv(name);
    char *copy = shown != NULL ? strdup(shown) : NULL;
    if (copy != NULL && setenv(name, copy, 1) == 0)
        explicit_bzero(shown, strlen(shown));
    free(copy);
}

/* Where one of the three was closed at the start, the next socket would take its number, and get what is printed or
 * logged. Of what is opened in its place nothing can be read, and nothing written to it. */
static void hold_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/", O_PATH); /* takes the lowest number that is free: this one */
}

void secrecy_begin(int argc, char **argv) {
    hold_standard_descriptors();
    if (getenv("QUORATE_ALLOW_CORE_DUMPS") == NULL)
        forbid_dumps();
    hide_arguments(argc, argv);
    hide_variable("QUORATE_DB");
    hide_variable("PGPASSWORD");
    (void)unsetenv("SSLKEYLOGFILE"); /* libcurl and GnuTLS write the keys of every session to the file that it names */
}

/* Locking twice is harmless, and tells. */
bool secrecy_locked(const void *memory, size_t size) {
    return mlock(memory, size) == 0;
}
