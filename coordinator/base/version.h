/* The version of quorate and quorate-custodian. */
#ifndef QUORATE_BASE_VERSION_H
#define QUORATE_BASE_VERSION_H

#define QUORATE_VERSION "0.1.0"

#endif
