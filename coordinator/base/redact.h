/* Hides in a text what must never be shown: passwords of connection strings and secret keys. */
#ifndef QUORATE_BASE_REDACT_H
#define QUORATE_BASE_REDACT_H

#include <stdbool.h>

/* Replaces in place, each by three stars at most: what stands behind "password=", to the end of the text (where a value
 * ends depends on how it is quoted); what stands between "://USER:" and the last '@'; and the base64 behind "whsk_",
 * "whsec_" and "qbsk_". The rest of the text's bytes become 0. True if there was anything to hide. */
bool redact(char *text);

#endif
