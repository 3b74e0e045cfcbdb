/* The bulkhead: slots are bounded, given in turn, never lost, and a dark endpoint keeps no healthy one waiting. */
#include "unit.h"

#include "fake_coordinator.h"

enum { SLOTS = 4 };

/* Rounds 1..count with one delivery each, to node 1; all want a slot at once. */
static void join(struct coordinator *c, int from, int to, int node_id, struct track *tracks[]) {
    for (int i = from; i <= to; i++) {
        const struct work_row row = fake_row(i, node_id);
        struct delivery *delivery = fake_merge(c, &row);
        assert_non_null(delivery);
        tracks[i] = &delivery->track[ROUTE_PRIMARY];
    }
}

/* The tracks that have got a slot, as digits. */
static const char *with_slot(struct track *const tracks[], int count) {
    static char digits[32];
    size_t length = 0;
    for (int i = 1; i <= count; i++) {
        if (tracks[i]->state == TRACK_RESERVING) {
            digits[length++] = (char)('0' + i);
        } else {
            assert_int_equal(tracks[i]->state, TRACK_QUEUED);
        }
    }
    digits[length] = '\0';
    return digits;
}

static void slots_are_bounded_and_given_in_turn(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    assert_int_equal(endpoint->slots, SLOTS);
    join(&c, 1, 8, 1, tracks);
    assert_int_equal(endpoint->in_flight, SLOTS);
    assert_string_equal(with_slot(tracks, 8), "1234");

    endpoint_give_back(&c.nodes, endpoint);
    assert_string_equal(with_slot(tracks, 8), "12345");
    assert_int_equal(endpoint->in_flight, SLOTS);
    join(&c, 9, 9, 1, tracks); /* whoever comes later waits behind */
    endpoint_give_back(&c.nodes, endpoint);
    endpoint_give_back(&c.nodes, endpoint);
    endpoint_give_back(&c.nodes, endpoint);
    assert_string_equal(with_slot(tracks, 9), "12345678");
    endpoint_give_back(&c.nodes, endpoint);
    assert_string_equal(with_slot(tracks, 9), "123456789");
    assert_null(endpoint->queue);
    for (unsigned left = SLOTS; left > 0; left--) {
        assert_int_equal(endpoint->in_flight, left);
        endpoint_give_back(&c.nodes, endpoint);
    }
    assert_int_equal(endpoint->in_flight, 0);
    endpoint->in_flight = 9; /* that of the nine, who give theirs back when they are dropped */
    fake_stop(&c);
}

static void who_leaves_the_queue_is_passed_over(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    join(&c, 1, 9, 1, tracks);
    track_event(tracks[5], TRACK_STOPPED); /* the first of the queue, one in the middle, and the last */
    track_event(tracks[7], TRACK_NODE_ACKED);
    track_event(tracks[9], TRACK_STOPPED);
    for (int i = 0; i < 3; i++) {
        endpoint_give_back(&c.nodes, endpoint);
    }
    assert_int_equal(tracks[5]->state, TRACK_ENDED);
    assert_int_equal(tracks[6]->state, TRACK_RESERVING);
    assert_int_equal(tracks[7]->state, TRACK_ENDED);
    assert_int_equal(tracks[8]->state, TRACK_RESERVING);
    assert_int_equal(tracks[9]->state, TRACK_ENDED);
    assert_null(endpoint->queue);
    assert_int_equal(endpoint->in_flight, SLOTS - 1);
    endpoint->in_flight = 6;
    fake_stop(&c);
}

static void a_closed_book_gives_nothing(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    join(&c, 1, 2, 1, tracks);
    c.nodes.closed = true;
    join(&c, 3, 5, 1, tracks);
    assert_string_equal(with_slot(tracks, 5), "12");
    endpoint_give_back(&c.nodes, endpoint);
    assert_int_equal(endpoint->in_flight, 1);
    assert_string_equal(with_slot(tracks, 5), "12");

    /* Open again, with slots free and some waiting: nobody overtakes them, and the next one back sets them going. */
    c.nodes.closed = false;
    join(&c, 6, 6, 1, tracks);
    assert_string_equal(with_slot(tracks, 6), "12");
    endpoint_give_back(&c.nodes, endpoint);
    assert_string_equal(with_slot(tracks, 6), "123456");
    assert_int_equal(endpoint->in_flight, SLOTS);
    endpoint->in_flight = 6;
    fake_stop(&c);
}

static void a_committed_attempt_takes_its_slot_beyond_the_limit(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    join(&c, 1, 5, 1, tracks);
    endpoint_take(endpoint);
    assert_int_equal(endpoint->in_flight, SLOTS + 1);
    endpoint_give_back(&c.nodes, endpoint); /* down to the limit: none is free */
    assert_string_equal(with_slot(tracks, 5), "1234");
    endpoint_give_back(&c.nodes, endpoint);
    assert_string_equal(with_slot(tracks, 5), "12345");
    assert_int_equal(endpoint->in_flight, SLOTS);
    endpoint->in_flight = 5;
    fake_stop(&c);
}

static void endpoints_are_shared_by_url_and_by_nothing_else(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    const struct node *one = fake_node(&c, 1, "http://n1/", "http://b/");
    const struct node *two = fake_node(&c, 2, "http://n2/", "http://b/");
    const struct node *three = fake_node(&c, 3, "http://n1/", NULL);
    assert_ptr_equal(one->route[ROUTE_BACKUP], two->route[ROUTE_BACKUP]);
    assert_ptr_equal(one->route[ROUTE_PRIMARY], three->route[ROUTE_PRIMARY]);
    assert_ptr_not_equal(one->route[ROUTE_PRIMARY], two->route[ROUTE_PRIMARY]);
    assert_null(three->route[ROUTE_BACKUP]);
    assert_ptr_equal(fake_node(&c, 1, "http://other/", NULL), one); /* a version never changes */
    assert_null(node_find(&c.nodes, 4));

    join(&c, 1, 6, 1, tracks); /* node 1 goes dark with all slots taken, and some more wait */
    join(&c, 7, 7, 2, tracks);
    assert_int_equal(tracks[7]->state, TRACK_RESERVING);
    join(&c, 8, 8, 3, tracks); /* the same URL: the same slots */
    assert_int_equal(tracks[8]->state, TRACK_QUEUED);
    fake_stop(&c);
}

static void a_claim_under_way_keeps_its_slots(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    node_book_pledge(&c.nodes, SLOTS - 1);
    join(&c, 1, 4, 1, tracks);
    assert_int_equal(endpoint->in_flight, 1); /* the others are the claim's */
    node_book_pledge(&c.nodes, 0);            /* it has been answered */
    assert_int_equal(endpoint->in_flight, 4);
    fake_stop(&c);
}

/* The database cannot tell such a key from a good one. Were the node unknown, its deliveries would be nobody's. */
static void a_node_whose_key_cannot_be_used_is_known_and_gets_nothing(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    const struct node_version_row row = {.version = 1,
                                         .node_id = 1,
                                         .url = "http://n1/",
                                         .receipt_key = "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="};
    assert_true(node_add(&c.nodes, &row));
    assert_non_null(node_find(&c.nodes, 1));
    assert_non_null(node_find(&c.nodes, 1)->obstacle);
    fake_stop(&c);
}

#define FIRST_KEY  "whpk_Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc="
#define SECOND_KEY "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
#define NO_KEY     "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

/* Each receipt is verified under all keys of the version, and it is told which of them it was. */
static void a_receipt_by_any_key_of_the_version_counts(void **state) {
    (void)state;
    static const char *const SECRETS[] = {
        "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==",
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA=="};
    static const struct {
        const char *keys;
        int signer[COUNT(SECRETS)];
        bool obstacle;
    } cases[] = {
        {FIRST_KEY, {1, 0}, false},
        {FIRST_KEY " " SECOND_KEY, {1, 2}, false},
        {SECOND_KEY " " FIRST_KEY, {2, 1}, false},
        {NO_KEY " " FIRST_KEY, {2, 0}, false}, /* what cannot be used keeps its place */
        {NO_KEY " whpk_ " SECOND_KEY " ", {0, 3}, false},
        {FIRST_KEY SECOND_KEY, {0, 0}, true},
        {FIRST_KEY "x " SECOND_KEY, {0, 2}, false},
        {NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " FIRST_KEY, {8, 0}, false},
        {NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " NO_KEY " " FIRST_KEY,
         {0, 0},
         true},
        {"", {0, 0}, true},
        {" ", {0, 0}, true},
    };
    struct coordinator c;
    fake_start(&c, SLOTS);
    const struct envelope_key envelope = {.deployment = "d", .round_id = "r", .node_id = 1, .nonce = 7};
    const unsigned char digest[SHA256_BYTES] = {1}, other[SHA256_BYTES] = {2};
    for (int i = 0; i < (int)COUNT(cases); i++) {
        const struct node_version_row row = {
            .version = i + 1, .node_id = 1, .url = "http://n/", .receipt_key = cases[i].keys};
        assert_true(node_add(&c.nodes, &row));
        const struct node *node = node_find(&c.nodes, i + 1);
        assert_int_equal(node->obstacle != NULL, cases[i].obstacle);
        for (size_t j = 0; j < COUNT(SECRETS); j++) {
            struct secret_key *key = secret_key_parse(SECRETS[j], NULL);
            struct signature receipt;
            assert_non_null(key);
            receipt_sign(key, &envelope, digest, &receipt);
            assert_int_equal(node_signer(node, &envelope, digest, &receipt), cases[i].signer[j]);
            assert_int_equal(node_signer(node, &envelope, other, &receipt), 0);
            secret_key_free(key);
        }
    }
    fake_stop(&c);
}

/* A node version is known all the same: its requests fail, and a round with other nodes goes on. */
static void a_secret_that_is_missing_is_no_other_one(void **state) {
    (void)state;
    struct coordinator c;
    struct error err;
    char text[] = "1 = whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
    fake_start(&c, SLOTS);
    struct secret_set *secrets = secret_set_parse(text, sizeof text - 1, SECRET_LINES_NODES, &err);
    assert_non_null(secrets);
    c.nodes.secrets = secrets;
    static const struct {
        int node_id;
        const char *id;
        bool there;
    } cases[] = {
        {1, "whid_ca2a4fe727faaecf", true},
        {2, "whid_ca2a4fe727faaecf", false}, /* the secret of node 1 */
        {1, "whid_ca2a4fe727faaec0", false},
    };
    for (int i = 0; i < (int)COUNT(cases); i++) {
        const struct node_version_row row = {
            .version = i + 1, .node_id = cases[i].node_id, .url = "http://n/", .receipt_key = cases[i].id};
        assert_true(node_add(&c.nodes, &row));
        const struct node *node = node_find(&c.nodes, i + 1);
        assert_true(node->symmetric);
        assert_ptr_equal(node->secret, cases[i].there ? secret_set_at(secrets, 0) : NULL);
    }
    fake_stop(&c);
    secret_set_free(secrets);
}

/* Nodes that are known already get them, and lose them. */
static void secrets_that_are_read_again(void **state) {
    (void)state;
    struct coordinator c;
    struct error err;
    char text[] = "1 = whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
    fake_start(&c, SLOTS);
    const struct node_version_row row = {
        .version = 7, .node_id = 1, .url = "http://n/", .receipt_key = "whid_ca2a4fe727faaecf"};
    assert_true(node_add(&c.nodes, &row));
    const struct node *node = node_find(&c.nodes, 7), *other = fake_node(&c, 2, "http://n2/", NULL);
    assert_null(node->secret);
    assert_non_null(node->obstacle);
    struct secret_set *secrets = secret_set_parse(text, sizeof text - 1, SECRET_LINES_NODES, &err);
    assert_non_null(secrets);
    coordinator_take_secrets(&c, secrets);
    assert_ptr_equal(node->secret, secret_set_at(secrets, 0));
    assert_null(node->obstacle);
    coordinator_take_secrets(&c, NULL);
    assert_null(node->secret);
    assert_non_null(node->obstacle);
    assert_false(other->symmetric);
    assert_null(other->obstacle);
    fake_stop(&c);
    secret_set_free(secrets);
}

/* How many rounds may be claimed; the versions to leave out stand in `busy`. */
static int32_t room(struct coordinator *c, double now, int32_t most, int32_t *busy, size_t busy_size, size_t *count) {
    return node_book_room(&c->nodes, now, most, busy, busy_size, count);
}

static void room_for_claims(void **state) {
    (void)state;
    struct coordinator c;
    int32_t busy[4];
    size_t count = 99;
    fake_start(&c, 64);
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64); /* no node is known: one endpoint's slots */
    assert_int_equal(count, 0);
    assert_int_equal(room(&c, 1000, 10, busy, 4, &count), 10);
    assert_int_equal(room(&c, 1000, 0, busy, 4, &count), 0);

    struct endpoint *one = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    struct endpoint *two = fake_node(&c, 2, "http://n2/", NULL)->route[ROUTE_PRIMARY];
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);

    /* Quick: its slots come back at once, so the claim waits for them. */
    one->in_flight = 50;
    one->hold_s = 0.001;
    one->answered_at = 999.99;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 14);
    assert_int_equal(count, 0); /* 14 rounds fit everywhere */
    one->in_flight = 64;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 0);
    one->in_flight = 70; /* beyond the limit */
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 0);

    /* Dark: nothing has come back for a while. It holds nobody up, and its first attempts wait in its queue. */
    one->answered_at = 990;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);
    assert_int_equal(count, 1);
    assert_int_equal(busy[0], 1);
    /* Slow: slots come back, but each is held for longer than by another. */
    two->hold_s = 0.01;
    two->answered_at = 1000;
    one->answered_at = 1000;
    one->hold_s = 0.2;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);
    assert_int_equal(count, 1);
    /* Slow, but with slots enough for what the quick one allows. */
    one->in_flight = 44;
    two->in_flight = 54;
    two->answered_at = 1000;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 10);
    assert_int_equal(count, 0);
    /* All free is quick, however slow it once was. */
    one->in_flight = 0;
    two->in_flight = 0;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);
    assert_int_equal(count, 0);
    fake_stop(&c);
}

/* A flood on slow machines: were all passed by, every first attempt would need a reservation of its own. */
static void who_is_as_slow_as_all_others_is_waited_for(void **state) {
    (void)state;
    struct coordinator c;
    int32_t busy[4];
    size_t count;
    fake_start(&c, 64);
    struct endpoint *ends[3];
    for (int i = 0; i < 3; i++) {
        char url[32];
        snprintf(url, sizeof url, "http://n%d/", i + 1);
        ends[i] = fake_node(&c, i + 1, url, NULL)->route[ROUTE_PRIMARY];
        ends[i]->in_flight = 60;
        ends[i]->hold_s = 0.12;
        ends[i]->answered_at = 999.99;
    }
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 4);
    assert_int_equal(count, 0);
    ends[0]->in_flight = 64;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 0);
    /* One that is much quicker shows that the others are slow. */
    ends[2]->hold_s = 0.02;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 4);
    assert_int_equal(count, 1);
    assert_int_equal(busy[0], 1);
    /* But not one that has not answered for a while. */
    ends[2]->answered_at = 990;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 0);
    /* All dark, or as slow as if they were: rounds are claimed all the same, for their deadlines and backups. */
    ends[2]->hold_s = ends[1]->hold_s = ends[0]->hold_s = 0.6;
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        ends[i]->hold_s = 0.12;
        ends[i]->answered_at = 999;
    }
    assert_int_equal(room(&c, 1000, 128, busy, 4, &count), 64);
    assert_int_equal(count, 3);
    fake_stop(&c);
}

/* More nodes behind one URL than it has slots, or so many that few rounds fit: one round goes all the same, and no
 * claim waits for more room than there can ever be. */
static void nodes_that_share_a_url_starve_no_claim(void **state) {
    (void)state;
    for (unsigned slots = 1; slots <= 64; slots *= 4) {
        struct coordinator c;
        int32_t busy[40];
        size_t count;
        fake_start(&c, slots);
        for (int i = 1; i <= 40; i++) {
            assert_non_null(fake_node(&c, i, "http://gateway/", NULL));
            int32_t most = room(&c, 1000, 40, busy, 40, &count);
            assert_true(most >= 1);
            assert_true(most >= node_book_worth(&c.nodes, 20));
        }
        fake_stop(&c);
    }
}

static void room_beside_a_queue(void **state) {
    (void)state;
    struct coordinator c;
    struct track *tracks[10];
    int32_t busy[2];
    size_t count;
    fake_start(&c, SLOTS);
    struct endpoint *one = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    assert_non_null(fake_node(&c, 2, "http://n1/", NULL));
    assert_non_null(fake_node(&c, 3, "http://n1/", NULL));
    assert_non_null(fake_node(&c, 4, "http://n4/", NULL));
    join(&c, 1, 5, 1, tracks);
    one->in_flight = 0; /* as if the book had been closed for a while: free slots and a queue */
    /* A round may bring one first attempt for each of the three nodes that share the URL. */
    assert_int_equal(room(&c, 1000, 128, busy, 2, &count), SLOTS / 3);
    assert_int_equal(count, 2); /* three versions have that URL, but there is room to name two */
    assert_in_range(busy[0], 1, 3);
    assert_in_range(busy[1], 1, 3);
    one->in_flight = 5;
    fake_stop(&c);
}

static void how_long_slots_are_held_is_smoothed(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    for (int i = 0; i < 200; i++) {
        endpoint_note(endpoint, 0.4, i, true);
    }
    assert_true(endpoint->hold_s > 0.39 && endpoint->hold_s <= 0.4);
    assert_true(endpoint->answered_at >= 199 && endpoint->answered_at <= 199);
    endpoint_note(endpoint, 0, 200, true); /* one quick answer does not make it quick */
    assert_true(endpoint->hold_s > 0.3);
    endpoint_note(endpoint, 0.1, 300, false); /* a time-out is no answer */
    assert_true(endpoint->answered_at <= 200);
    fake_stop(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_bounded_and_given_in_turn),
        cmocka_unit_test(who_leaves_the_queue_is_passed_over),
        cmocka_unit_test(a_closed_book_gives_nothing),
        cmocka_unit_test(a_committed_attempt_takes_its_slot_beyond_the_limit),
        cmocka_unit_test(endpoints_are_shared_by_url_and_by_nothing_else),
        cmocka_unit_test(a_claim_under_way_keeps_its_slots),
        cmocka_unit_test(a_node_whose_key_cannot_be_used_is_known_and_gets_nothing),
        cmocka_unit_test(a_receipt_by_any_key_of_the_version_counts),
        cmocka_unit_test(a_secret_that_is_missing_is_no_other_one),
        cmocka_unit_test(secrets_that_are_read_again),
        cmocka_unit_test(room_for_claims),
        cmocka_unit_test(who_is_as_slow_as_all_others_is_waited_for),
        cmocka_unit_test(nodes_that_share_a_url_starve_no_claim),
        cmocka_unit_test(room_beside_a_queue),
        cmocka_unit_test(how_long_slots_are_held_is_smoothed),
    };
    if (!wire_start(NULL)) {
        return 1;
    }
    return cmocka_run_group_tests_name("node", tests, NULL, NULL);
}
