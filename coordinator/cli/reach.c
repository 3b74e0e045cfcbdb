/* How a coordinator may reach nodes: what the options of `quorate run` say, read and checked. */
#include "cli/reach.h"

#include <stdlib.h>

#include "wire/tls_files.h"

static bool load_networks(const struct option_list *given, struct reach *reach, struct error *err) {
    struct error cause = {0};
    reach->networks = calloc(given->count + 1, sizeof *reach->networks);
    if (reach->networks == NULL)
        return error_set(err, EXIT_UNEXPECTED, "out of memory");
    for (size_t i = 0; i < given->count; i++)
        if (!network_parse(given->values[i], &reach->networks[i], &cause))
            return error_set(err, cause.code, "--allow-network: %s", cause.text);
    return true;
}

/* libcurl reads the files itself, and says at the first connection what is wrong with them: too late. */
static bool check_files(const struct reach_options *options, struct error *err) {
    if ((options->client_cert == NULL) != (options->client_key == NULL))
        return error_set(err, EXIT_USAGE, "--client-cert and --client-key go together: give both or none");
    const struct tls_files files = {.certificate = {"--client-cert", options->client_cert},
                                    .key = {"--client-key", options->client_key},
                                    .ca = {"--ca", options->ca}};
    gnutls_certificate_credentials_t loaded = tls_files_load(&files, err);
    if (loaded == NULL)
        return false;
    gnutls_certificate_free_credentials(loaded);
    return true;
}

bool reach_load(const struct reach_options *options, struct reach *reach, struct error *err) {
    *reach = (struct reach){0};
    if (!check_files(options, err) || !load_networks(&options->networks, reach, err) ||
        (options->node_pins != NULL && (reach->pins = pin_set_load(options->node_pins, err)) == NULL))
        return false;
    reach->policy = (struct http_policy){.peers = {.networks = reach->networks,
                                                   .network_count = options->networks.count,
                                                   .plain_http = options->plain_http},
                                         .ca_file = options->ca,
                                         .cert_file = options->client_cert,
                                         .cert_key = options->client_key};
    return true;
}

void reach_free(struct reach *reach) {
    pin_set_free(reach->pins);
    free(reach->networks);
}
