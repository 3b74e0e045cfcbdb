/* What the URL of a node says before anything is sent there. */
#include "transport/url.h"

#include <netdb.h>
#include <string.h>
#include <strings.h>

enum { HTTP = sizeof "http://" - 1, HTTPS = sizeof "https://" - 1 };

bool url_is_tls(const char *url) {
    return strncasecmp(url, "https://", HTTPS) == 0;
}

/* libcurl would also guess a scheme and take the first word behind "http:///" for the host. A user name would make it
 * add a header of its own. */
bool url_usable(CURLU *parser, const char *url) {
    size_t scheme = strncasecmp(url, "http://", HTTP) == 0 ? HTTP : url_is_tls(url) ? HTTPS : 0;
    return scheme != 0 && url[scheme] != '/' &&
           curl_url_set(parser, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK;
}

/* Without the brackets of an IPv6 address; libcurl has written 2852039166 and the like as four numbers. */
static bool host_allowed(const struct peer_rules *rules, char *host, bool tls, char why[PEER_WHY]) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    size_t length = strlen(host);
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        host++;
    }
    bool allowed = getaddrinfo(host, NULL, &hints, &found) != 0 || peer_allowed(rules, found->ai_addr, tls, why);
    if (found != NULL)
        freeaddrinfo(found);
    return allowed;
}

bool url_allowed(const struct peer_rules *rules, const char *url, char why[PEER_WHY]) {
    CURLU *parser = curl_url();
    char *host = NULL;
    why[0] = '\0';
    /* What cannot be read here is refused when it is to be used. */
    bool allowed = parser == NULL || !url_usable(parser, url) ||
                   curl_url_get(parser, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
                   host_allowed(rules, host, url_is_tls(url), why);
    curl_free(host);
    curl_url_cleanup(parser);
    return allowed;
}
