"""A coordinator has its frequent calls parsed and planned once a connection, where a connection is the server's own."""

import re

import pytest
from harness.bouncer import Bouncer

SESSION = r"event=database_session session={} .*prepared={}"
DEBUG = ("--log-level", "debug")


def test_direct_connections_prepare_what_is_sent_often(lab):
    coordinator, node = lab.coordinator(options=DEBUG), lab.node()
    for session in ("lane1", "lane2", "beat"):
        assert re.search(SESSION.format(session, "yes"), coordinator.log)
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert "batch_failed" not in coordinator.log


def test_behind_a_pooler_nothing_is_prepared(lab):
    """The next transaction may run in a session that knows nothing of it."""
    with Bouncer(lab.cluster, "transaction", {"server_round_robin": 1}) as bouncer:
        coordinator = lab.processes.coordinator(bouncer.conninfo(lab.db.name), lab.key_file,
                                                options=("--listen-db", lab.db.conninfo, *DEBUG))
        assert re.search(SESSION.format("lane1", "no"), coordinator.log) and re.search(SESSION.format("beat", "yes"), coordinator.log)
        lab.processes.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_function_that_is_missing_and_comes_back_is_called_again(lab, when):
    """Missing when the connection is made, nothing is prepared; made anew under a prepared call, that one finds it."""
    text = lab.db.one("SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.oid = 'quorate_worker.settle'::regproc")
    drop = "DROP FUNCTION quorate_worker.settle(int, boolean, bigint[])"
    if when == "before":
        lab.db.conn.execute(drop)
    coordinator, node = lab.coordinator(options=DEBUG), lab.node()
    assert re.search(SESSION.format("lane1", "no" if when == "before" else "yes"), coordinator.log)
    if when == "meanwhile":
        assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
        lab.db.conn.execute(drop)
    opened = lab.db.new_round_id()
    lab.db.open(1, opened)
    lab.db.conn.execute("SELECT quorate.cancel_round(%s, 'so that something is to be settled')", (opened,))
    coordinator.wait_line(r"event=batch_failed .*quorate_worker\.settle")
    lab.db.conn.execute(text)
    assert lab.db.wait_settled(opened)["state"] == "cancelled"
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
