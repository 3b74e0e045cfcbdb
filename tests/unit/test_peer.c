/* Which addresses nodes may have: in every spelling of an address, and in every IPv6 address that leads to one. */
#include "unit.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "transport/peer.h"
#include "transport/url.h"

static const struct peer_rules anywhere = {.plain_http = true};

static bool judge(const struct peer_rules *rules, const char *host, bool tls, char why[PEER_WHY]) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    assert_int_equal(getaddrinfo(host, NULL, &hints, &found), 0);
    bool allowed = peer_allowed(rules, found->ai_addr, tls, why);
    assert_int_equal(allowed, why[0] == '\0');
    freeaddrinfo(found);
    return allowed;
}

static void no_node_is_ever_there(void **state) {
    (void)state;
    static const struct {
        const char *address, *why;
    } cases[] = {
        {"0.0.0.0", "0.0.0.0 stands for no host: no node may be there"},
        {"0.1.2.3", "0.1.2.3 stands for no host: no node may be there"},
        {"169.254.0.0", "169.254.0.0 is link-local: no node may be there"},
        {"169.254.169.254", "169.254.169.254 is link-local: no node may be there"},
        {"169.254.255.255", "169.254.255.255 is link-local: no node may be there"},
        {"2852039166", "169.254.169.254 is link-local: no node may be there"},
        {"0xa9fea9fe", "169.254.169.254 is link-local: no node may be there"},
        {"0251.0376.0251.0376", "169.254.169.254 is link-local: no node may be there"},
        {"169.254.43518", "169.254.169.254 is link-local: no node may be there"},
        {"224.0.0.1", "224.0.0.1 is multicast: no node may be there"},
        {"239.255.255.255", "239.255.255.255 is multicast: no node may be there"},
        {"255.255.255.255", "255.255.255.255 is broadcast: no node may be there"},
        {"100.100.100.200", "100.100.100.200 is a metadata service: no node may be there"},
        {"168.63.129.16", "168.63.129.16 is a metadata service: no node may be there"},
        {"192.0.0.192", "192.0.0.192 is a metadata service: no node may be there"},
        {"::", ":: stands for no host: no node may be there"},
        {"fe80::1", "fe80::1 is link-local: no node may be there"},
        {"febf:ffff::1", "febf:ffff::1 is link-local: no node may be there"},
        {"ff02::1", "ff02::1 is multicast: no node may be there"},
        {"fd00:ec2::254", "fd00:ec2::254 is a metadata service: no node may be there"},
        {"fd00:ec2::23", "fd00:ec2::23 is a metadata service: no node may be there"},
        {"fd20:ce::254", "fd20:ce::254 is a metadata service: no node may be there"},
        {"fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe is a metadata service: no node may be there"},
        {"fd00:42::42", "fd00:42::42 is a metadata service: no node may be there"},
        {"fd00:a9fe:a9fe::1", "fd00:a9fe:a9fe::1 is a metadata service: no node may be there"},
        {"::ffff:169.254.169.254", "169.254.169.254 is link-local: no node may be there"},
        {"::ffff:0.0.0.0", "0.0.0.0 stands for no host: no node may be there"},
        {"::ffff:6464:64c8", "100.100.100.200 is a metadata service: no node may be there"},
        {"::169.254.1.1", "::169.254.1.1 leads to 169.254.1.1, which is link-local"},
        {"::127.0.0.1", "::127.0.0.1 leads to 127.0.0.1, which is loopback"},
        {"::ffff:0:169.254.1.1", "::ffff:0:a9fe:101 leads to 169.254.1.1, which is link-local"},
        {"64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe leads to 169.254.169.254, which is link-local"},
        {"64:ff9b::127.0.0.1", "64:ff9b::7f00:1 leads to 127.0.0.1, which is loopback"},
        {"64:ff9b:1::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe leads to 169.254.169.254, which is link-local"},
        {"64:ff9b:1:a9fe:a9:fe01:102:304",
         "64:ff9b:1:a9fe:a9:fe01:102:304 leads to 169.254.169.254, which is link-local"},
        {"64:ff9b:1:1a9:fe:a9fe:102:304",
         "64:ff9b:1:1a9:fe:a9fe:102:304 leads to 169.254.169.254, which is link-local"},
        {"64:ff9b:1:102:a9:fea9:fe02:304",
         "64:ff9b:1:102:a9:fea9:fe02:304 leads to 169.254.169.254, which is link-local"},
        {"2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1 leads to 169.254.169.254, which is link-local"},
        {"2002:a83f:8110::", "2002:a83f:8110:: leads to 168.63.129.16, which is a metadata service"},
        {"2001::f7f7:f7f7", "2001::f7f7:f7f7 leads to 0.0.0.0, which stands for no host"}, /* its server is none */
        {"2001:0:4136:e378:0:0:5601:5601", "2001:0:4136:e378::5601:5601 leads to 169.254.169.254, which is link-local"},
        {"2001:db8::5efe:169.254.1.1", "2001:db8::5efe:a9fe:101 leads to 169.254.1.1, which is link-local"},
        {"2001:db8::200:5efe:a9fe:101", "2001:db8::200:5efe:a9fe:101 leads to 169.254.1.1, which is link-local"},
    };
    struct network network;
    assert_true(network_parse("::/0", &network, NULL));
    struct network every[2] = {network, {.family = AF_INET}};
    const struct peer_rules all = {.networks = every, .network_count = 2, .plain_http = true};
    char why[PEER_WHY];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int tls = 0; tls < 2; tls++) {
            assert_false(judge(&anywhere, cases[i].address, tls != 0, why));
            assert_string_equal(why, cases[i].why);
            assert_false(judge(&all, cases[i].address, tls != 0, why)); /* no option allows it */
        }
    }
}

static void anywhere_else_they_may_be(void **state) {
    (void)state;
    static const char *const addresses[] = {
        "127.0.0.1",
        "127.255.0.3",
        "::1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "100.100.100.199",
        "168.63.129.17",
        "1.0.0.0",
        "223.255.255.255",
        "8.8.8.8",
        "::ffff:10.0.0.1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:db8::1",
        "fd00:ec2::253",
        "fd12::1",
        "fec0::1",
        "2606:4700::1",
        "64:ff9b:2::a9fe:1",
        "2003:a9fe:a9fe::1",
        "2001:1:a9fe:a9fe::1",
        "2001:db8::5efe:808:808",
        "2001:db8::100:5efe:a9fe:101",
    };
    char why[PEER_WHY];
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        if (!judge(&anywhere, addresses[i], true, why) || !judge(&anywhere, addresses[i], false, why))
            fail_msg("%s: %s", addresses[i], why);
    }
}

static void plain_http_stays_on_this_machine(void **state) {
    (void)state;
    static const struct peer_rules rules = {0};
    static const char *const here[] = {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"};
    static const char *const elsewhere[] = {"10.0.0.1", "128.0.0.1", "126.255.255.255", "2001:db8::2", "fd12::1"};
    char why[PEER_WHY];
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++)
        assert_true(judge(&rules, here[i], false, why));
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        assert_false(judge(&rules, elsewhere[i], false, why));
        assert_non_null(strstr(why, "https"));
        assert_non_null(strstr(why, "--allow-plain-http"));
        assert_non_null(strstr(why, elsewhere[i]));
    }
    assert_true(judge(&rules, "10.0.0.1", true, why));
}

static void only_networks_that_are_allowed(void **state) {
    (void)state;
    static const char *const texts[] = {"10.1.0.0/16", "192.0.2.7", "fd12:3400::/23", "::ffff:198.51.100.0/120",
                                        "2001:db8::7/128"};
    static const char *const inside[] = {"10.1.0.0",      "10.1.255.255", "::ffff:10.1.2.3", "192.0.2.7",
                                         "fd12:3500::99", "198.51.100.9", "2001:db8::7",     "fd12:35ff:ffff::1"};
    static const char *const outside[] = {"10.0.255.255", "10.2.0.0",  "192.0.2.6", "192.0.2.8",  "fd12:3600::",
                                          "198.51.101.0", "127.0.0.1", "::1",       "2001:db8::6"};
    struct network networks[5];
    for (size_t i = 0; i < 5; i++)
        assert_true(network_parse(texts[i], &networks[i], NULL));
    const struct peer_rules rules = {.networks = networks, .network_count = 5};
    char why[PEER_WHY];
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
        if (!judge(&rules, inside[i], true, why))
            fail_msg("%s: %s", inside[i], why);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_false(judge(&rules, outside[i], true, why));
        assert_non_null(strstr(why, "is in no network of --allow-network"));
    }
}

static void wrong_networks(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "is no network"},
        {"10.0.0.0/33", "is no network"},
        {"10.0.0.0/", "is no network"},
        {"10.0.0.0/-1", "is no network"},
        {"10.0.0/8", "is no network"},
        {"10.0.0.0/8x", "is no network"},
        {"fd00::/129", "is no network"},
        {"node.example", "is no network"},
        {"fd00::1%eth0", "is no network"},
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:0000:1111:2222/8", "is no network"},
        {"10.0.0.1/8", "bits set behind its length"},
        {"10.1.0.0/15", "bits set behind its length"},
        {"fd12::/8", "bits set behind its length"},
        {"::ffff:10.0.0.1/104", "bits set behind its length"},
        {"169.254.0.0/16", "is link-local"},
        {"169.254.169.254", "is link-local"},
        {"::ffff:169.254.0.0/112", "is link-local"},
        {"fe80::/64", "is link-local"},
        {"224.0.0.0/4", "is multicast"},
        {"fd00:ec2::254", "is a metadata service"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct network network;
        struct error err = {0};
        assert_false(network_parse(cases[i].text, &network, &err));
        assert_int_equal(err.code, EXIT_USAGE);
        if (strstr(err.text, cases[i].why) == NULL)
            fail_msg("\"%s\": %s", cases[i].text, err.text);
    }
}

static void what_a_url_shows(void **state) {
    (void)state;
    static const struct peer_rules rules = {0};
    static const struct {
        const char *url, *why; /* NULL: allowed, or only a look-up will show it */
    } cases[] = {
        {"http://127.0.0.1:8080/", NULL},
        {"HTTP://[::1]/x", NULL},
        {"http://node.example/", NULL},
        {"http://10.0.0.1/", "plain http to 10.0.0.1"},
        {"hTTps://10.0.0.1/", NULL},
        {"https://169.254.169.254/latest", "169.254.169.254 is link-local"},
        {"https://2852039166/", "169.254.169.254 is link-local"},
        {"https://0xA9FEA9FE:443/", "169.254.169.254 is link-local"},
        {"https://0251.0376.0251.0376/", "169.254.169.254 is link-local"},
        {"https://169.254.43518/", "169.254.169.254 is link-local"},
        {"https://169%2e254.169.254/", "169.254.169.254 is link-local"},
        {"https://[::ffff:169.254.169.254]/", "169.254.169.254 is link-local"},
        {"https://[fe80::1%25eth0]/", "fe80::1 is link-local"},
        {"http://0/", "0.0.0.0 stands for no host"},
        {"https://[2002:a9fe:a9fe::]/", "leads to 169.254.169.254"},
        {"ftp://169.254.169.254/", NULL}, /* refused elsewhere, as no URL of ours */
        {"", NULL},
    };
    char why[PEER_WHY];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool allowed = url_allowed(&rules, cases[i].url, why);
        if (allowed != (cases[i].why == NULL) || (!allowed && strstr(why, cases[i].why) == NULL))
            fail_msg("%s: %s", cases[i].url, why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_node_is_ever_there),
        cmocka_unit_test(anywhere_else_they_may_be),
        cmocka_unit_test(plain_http_stays_on_this_machine),
        cmocka_unit_test(only_networks_that_are_allowed),
        cmocka_unit_test(wrong_networks),
        cmocka_unit_test(what_a_url_shows),
    };
    return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
