"""Fills a database with finished rounds, quickly: through the product's own functions, but with no coordinator, no request and receipts that
are random bytes (the database stores receipts, and leaves their verification to coordinators and auditors)."""

import threading

SESSIONS = 2  # so that one computes while the other commits
PER_BATCH = 500

# What the programs do for a round, in the same transactions: submitted, claimed, all its acks recorded, and by that completed and settled.
FILL = """
CREATE PROCEDURE public.fill(p_prefix text, p_last int, p_per_batch int) LANGUAGE plpgsql AS $$
DECLARE
    v_instance int := (SELECT instance_no FROM quorate_worker.join_deployment(gen_random_uuid(), 'history ' || p_prefix, '1 hour'));
    v_first int := 1;
    v_next int;
    v_rounds bigint[];
    v_nodes smallint[];
    v_count int;
    v_again boolean;
BEGIN
    LOOP
        v_next := least(v_first + p_per_batch, p_last + 1);
        IF v_first < v_next THEN
            PERFORM quorate.submit_rounds(ARRAY(SELECT p_prefix || i FROM generate_series(v_first, v_next - 1) i), 2, '{1,2,3}',
                ARRAY(SELECT sha512((i || '/' || k)::bytea) FROM generate_series(v_first, v_next - 1) i, generate_series(1, 3) k ORDER BY i, k),
                round_deadline => '1 hour');
            COMMIT;
        END IF;
        -- Those of the other session as well.
        SELECT array_agg(w.round_no), array_agg(w.node_id), count(*) INTO v_rounds, v_nodes, v_count
          FROM quorate_worker.claim(v_instance, p_per_batch, p_per_batch, '{}') w;
        COMMIT;
        EXIT WHEN v_count = 0 AND v_first = v_next;
        v_again := v_count > 0;
        WHILE v_again LOOP -- a round that the other session's claim looked at meanwhile is locked for that long
            SELECT bool_or(r.state = 'locked') INTO v_again FROM quorate_worker.record(v_instance, false, v_rounds, v_nodes,
                array_fill('primary'::text, ARRAY[v_count]), array_fill(1::smallint, ARRAY[v_count]),
                array_fill('ack'::text, ARRAY[v_count]), array_fill(200::smallint, ARRAY[v_count]), array_fill(NULL::bigint, ARRAY[v_count]),
                ARRAY(SELECT sha512((u.round_no || '/' || u.i)::bytea) FROM unnest(v_rounds) WITH ORDINALITY AS u (round_no, i))) r;
            COMMIT;
        END LOOP;
        v_first := v_next;
    END LOOP;
    PERFORM quorate_worker.leave(v_instance, false);
END $$
"""


def fill(here, rounds: int) -> None:
    """So many complete, settled rounds, vacuumed and analyzed as they would be after a night; the nodes 1 to 3 are registered already."""
    with here.connect() as conn:
        conn.execute(FILL)

        def session(number: int) -> None:
            share = rounds // SESSIONS + (number < rounds % SESSIONS)
            with here.connect() as mine:
                mine.execute("CALL public.fill(%s, %s, %s)", (f"history-{number}-", share, PER_BATCH))

        threads = [threading.Thread(target=session, args=(number,)) for number in range(SESSIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        conn.execute("VACUUM (ANALYZE)")
        conn.execute("CHECKPOINT")
        states = conn.execute("SELECT state::text, settled_at IS NOT NULL, count(*) FROM quorate_store.round GROUP BY 1, 2").fetchall()
    assert states == [("complete", True, rounds)], f"history was not written as it should be: {states}"
