/* Groups the envelopes of concurrent requests into one transaction each time the disk is free again. */
#include "writer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct writer {
    struct store *store;
    void (*done)(struct put *put);
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct put *first, **last; /* in the order of arrival */
    bool stopping;
};

/* Waits for work; NULL when there is none left and the writer stops. */
static struct put *take_all(struct writer *writer) {
    pthread_mutex_lock(&writer->lock);
    while (!writer->first && !writer->stopping)
        pthread_cond_wait(&writer->changed, &writer->lock);
    struct put *list = writer->first;
    writer->first = NULL;
    writer->last = &writer->first;
    pthread_mutex_unlock(&writer->lock);
    return list;
}

static void report(bool good, const struct error *err, char *last, size_t last_size) {
    char quoted[1100];
    if (!good && log_changed(last, last_size, err->text)) {
        log_event(LOG_ERROR, "store_failed", "detail=%s", log_quote(err->text, quoted, sizeof quoted));
    } else if (good && last[0]) {
        log_event(LOG_INFO, "store_recovered", "");
        last[0] = 0;
    }
}

static void *write_groups(void *context) {
    struct writer *writer = context;
    char last_failure[1024] = "";

    for (struct put *list = take_all(writer); list; list = take_all(writer)) {
        struct error err = {EXIT_DONE, ""};
        bool good = store_put_group(writer->store, list, &err);
        report(good, &err, last_failure, sizeof last_failure);
        while (list) {
            struct put *put = list;
            list = put->next; /* done() may free it */
            writer->done(put);
        }
    }
    return NULL;
}

struct writer *writer_start(struct store *store, void (*done)(struct put *put), struct error *err) {
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        (void)error_set(err, EXIT_UNEXPECTED, "writer: out of memory");
        return NULL;
    }
    writer->store = store;
    writer->done = done;
    writer->last = &writer->first;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    int code = pthread_create(&writer->thread, NULL, write_groups, writer);
    if (code) {
        (void)error_set(err, EXIT_UNEXPECTED, "writer: cannot start a thread: %s", strerror(code));
        writer_free(writer);
        return NULL;
    }
    return writer;
}

bool writer_submit(struct writer *writer, struct put *put) {
    put->next = NULL;
    pthread_mutex_lock(&writer->lock);
    bool taken = !writer->stopping;
    bool was_empty = !writer->first;
    if (taken) {
        *writer->last = put;
        writer->last = &put->next;
    }
    pthread_mutex_unlock(&writer->lock);
    if (taken && was_empty)
        pthread_cond_signal(&writer->changed);
    return taken;
}

void writer_stop(struct writer *writer) {
    pthread_mutex_lock(&writer->lock);
    writer->stopping = true;
    pthread_mutex_unlock(&writer->lock);
    pthread_cond_signal(&writer->changed);
    pthread_join(writer->thread, NULL);
}

void writer_free(struct writer *writer) {
    if (!writer)
        return;
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}
