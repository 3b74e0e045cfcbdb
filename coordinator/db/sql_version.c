/* The schema version that this program was built for. */
#include <stdlib.h>
#include <string.h>

#include "db/sql_files.h"

int sql_files_schema_version(void) {
    static const char FOLDER[] = "migrations/";
    int latest = 0;
    for (size_t i = 0; i < sql_file_count; i++) {
        if (strncmp(sql_files[i].path, FOLDER, strlen(FOLDER)) == 0) {
            int number = (int)strtol(sql_files[i].path + strlen(FOLDER), NULL, 10);
            latest = number > latest ? number : latest;
        }
    }
    return latest;
}
