"""PostgreSQL over TLS with sslmode=verify-full and a private CA: the right server is used, and no other one is."""

import os
import time

import pytest
from harness.certificates import Authority
from harness.netlab import NetworkCluster, NetworkLab


def serve_tls(cluster, pair, address):
    """The server's certificate is this one, and over TCP only TLS is let in."""
    owner = cluster.data.stat()
    for name, source in (("server.crt", pair.certificate), ("server.key", pair.key)):
        path = cluster.data / name
        path.write_bytes(source.read_bytes())
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    (cluster.data / "pg_hba.conf").write_text(f"local all all trust\nhostssl all all {address}/16 trust\n")
    with cluster.connect() as conn:
        conn.execute("ALTER SYSTEM SET ssl = on")
        conn.execute("SELECT pg_reload_conf()")
    until = time.monotonic() + 20
    while True:
        with cluster.connect() as conn:
            if conn.execute("SHOW ssl").fetchone() == ("on",):
                return
        assert time.monotonic() < until, cluster.read_log()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A cluster whose certificate is for db.example; `ca` signed it."""
    folder = tmp_path_factory.mktemp("database")
    with NetworkCluster() as shared:
        shared.ca, shared.other = Authority(folder), Authority(folder, "other")
        serve_tls(shared.cluster, shared.ca.issue(names="DNS:db.example", subject="db.example"), shared.network["db"].address)
        yield shared


@pytest.fixture
def lab(secured, tmp_path, request):
    with_logs = NetworkLab(secured, tmp_path)
    with_logs.ca, with_logs.other = secured.ca, secured.other
    request.node.lab = with_logs
    yield with_logs
    with_logs.close()


def conninfo(lab, host="db.example", ca=None, mode="verify-full"):
    address = lab.network["db"].address
    return (f"host={host} hostaddr={address} port={lab.cluster.port} user=postgres dbname={lab.db.name} sslmode={mode} "
            f"sslrootcert={(ca or lab.ca).certificate}")


def command(lab, *arguments, conninfo):
    party = lab.network.parties.get("dealer") or lab.network.add("dealer")
    with party.entered():
        return lab.processes.command(*arguments, conninfo=conninfo)


def test_a_round_whose_database_is_verified(lab):
    node = lab.node()
    lab.coordinator(conninfo=conninfo(lab))
    round_id = lab.db.submit(1, [node])
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    done = command(lab, "collect", round_id, conninfo=conninfo(lab))
    assert (done.returncode, done.stdout) == (0, "1\n"), done
    rows = lab.db.rows("SELECT DISTINCT s.ssl, s.version FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
                       "WHERE a.datname = current_database() AND a.client_addr IS NOT NULL")
    assert rows == [{"ssl": True, "version": "TLSv1.3"}]


WRONG = {
    "the name": (lambda lab: conninfo(lab, host="db2.example"), 'does not match host name "db2.example"'),
    "the address": (lambda lab: conninfo(lab, host=lab.network["db"].address), "does not match host name"),
    "the CA": (lambda lab: conninfo(lab, ca=lab.other), "certificate verify failed"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("arguments", [("status",), ("collect", "r"), ("node", "list"), ("migrate",), ("prune", "--older-than", "1h")], ids=" ".join)
def test_a_server_that_is_not_the_right_one(lab, what, arguments):
    string, said = WRONG[what][0](lab), WRONG[what][1]
    done = command(lab, *arguments, conninfo=string)
    assert done.returncode == 7 and said in done.stderr and done.stdout == "", done


@pytest.mark.parametrize("what", WRONG)
def test_a_coordinator_tells_such_a_server_nothing_and_keeps_trying(lab, what):
    coordinator = lab.coordinator(conninfo=WRONG[what][0](lab), ready=False)
    coordinator.wait_line(f"event=database_lost .*{WRONG[what][1]}".replace('"', r'\\?"'))
    assert coordinator.running() and "event=ready" not in coordinator.log
    assert lab.db.rows("SELECT * FROM quorate.coordinators") == []


def test_no_way_back_to_a_connection_without_tls(lab):
    """Even where the server would take one."""
    rules = lab.cluster.data / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text(before.replace("hostssl", "host"))
        with lab.cluster.connect() as conn:
            conn.execute("ALTER SYSTEM SET ssl = off")
            conn.execute("SELECT pg_reload_conf()")
        plain = conninfo(lab, mode="disable")
        lab.db.wait("a server without TLS", lambda: command(lab, "status", conninfo=plain).returncode == 0)
        done = command(lab, "status", conninfo=conninfo(lab))
        assert done.returncode == 7 and "server does not support SSL" in done.stderr, done
    finally:
        rules.write_text(before)
        with lab.cluster.connect() as conn:
            conn.execute("ALTER SYSTEM SET ssl = on")
            conn.execute("SELECT pg_reload_conf()")
        lab.db.wait("TLS again", lambda: command(lab, "status", conninfo=conninfo(lab)).returncode == 0)
