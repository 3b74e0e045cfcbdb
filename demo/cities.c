/* Reads the demo's cities. */
#include "cities.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

unsigned char number(const char *what, const char *text, int max) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > max)
        give_up("%s \"%s\" is no number from 1 to %d", what, text, max);
    return (unsigned char)value;
}

/* Does the text begin with a number between -limit and limit, ended by `stop`? Sets where to go on. */
static int is_degrees(const char *text, double limit, char stop, const char **rest) {
    char *end;
    double degrees = strtod(text, &end);
    *rest = end + 1;
    return end > text && *end == stop && degrees >= -limit && degrees <= limit;
}

static int is_coordinate(const char *text) {
    return is_degrees(text, 90, ',', &text) && is_degrees(text, 180, 0, &text);
}

static int parse_line(char *line, struct city *city) {
    line[strcspn(line, "\r\n")] = 0;
    char *comma = strchr(line, ',');
    if (!comma || comma == line || (size_t)(comma - line) >= NAME_BYTES || strlen(comma + 1) > SECRET_BYTES ||
        !is_coordinate(comma + 1))
        return 0;
    *city = (struct city){0};
    memcpy(city->name, line, (size_t)(comma - line));
    memcpy(city->secret, comma + 1, strlen(comma + 1));
    return 1;
}

size_t cities_read(const char *path, struct city cities[CITIES_MAX]) {
    char line[256];
    size_t count = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        give_up("%s: %s", path, strerror(errno));
    if (!fgets(line, sizeof line, file))
        give_up("%s: empty; it should begin with the line name,latitude,longitude", path);
    while (fgets(line, sizeof line, file)) {
        if (count == CITIES_MAX)
            give_up("%s: more than %d cities", path, CITIES_MAX);
        if (!parse_line(line, &cities[count]))
            give_up("%s: line %zu is not name,latitude,longitude", path, count + 2);
        count++;
    }
    fclose(file);
    return count;
}

const struct city *city_find(const char *path, const char *name) {
    static struct city cities[CITIES_MAX];
    size_t count = cities_read(path, cities);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cities[i].name, name) == 0)
            return &cities[i];
    give_up("%s: no city \"%s\"", path, name);
}
