/* The files of migrations/ and sql/, embedded in the binary by scripts/embed-sql when it is built. */
#ifndef QUORATE_DB_SQL_FILES_H
#define QUORATE_DB_SQL_FILES_H

#include <stddef.h>

struct sql_file {
    const char *path;           /* "migrations/0001_store.sql" or "sql/10_rounds.sql" */
    const unsigned char *bytes; /* SQL in UTF-8, followed by a 0 that `size` does not count */
    size_t size;
};

extern const struct sql_file sql_files[]; /* in the order given to scripts/embed-sql */
extern const size_t sql_file_count;

/* The number of the last migration among them. */
int sql_files_schema_version(void);

#endif
