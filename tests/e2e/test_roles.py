"""The roles: every command with the one it needs, and refused with a helpful word under the others; how they come to be; what is left."""

import re
import subprocess
import threading

import psycopg
import pytest
from harness import build as programs
from harness import markdown, wire
from harness.cli import Cli
from harness.cluster import Cluster

ROLES = ("dealer", "collector", "coordinator", "auditor", "admin")
MANUAL = programs.ROOT / "docs" / "operations.md"


@pytest.fixture
def users(lab):
    """A user in each role, who may do no more than connect; their names."""
    names = {role: f"{role}_{lab.db.name}" for role in (*ROLES, "nobody")}
    for role, name in names.items():
        lab.db.conn.execute(f'CREATE ROLE "{name}" LOGIN' + (f" IN ROLE quorate_{role}" if role != "nobody" else ""))
    yield names
    for name in names.values():
        lab.db.conn.execute(f'DROP ROLE "{name}"')


def conninfo_of(lab, user):
    return lab.db.conninfo.replace("user=postgres", f"user={user}")


def connect(lab, user):
    return psycopg.connect(conninfo_of(lab, user), autocommit=True)


# Commands: what each needs, how it ends with that, and what it then prints.

COMMANDS = [
    ("node add 9 --url http://n9.test/ --key KEY", "admin", (), 0),
    ("node enable 1", "admin", (), 0),
    ("node disable 2", "admin", (), 0),
    ("node list", "auditor", ("admin",), 0),
    ("open fresh --quorum 1", "dealer", (), 0),
    ("distribute dealt --nonce 77 --share 1=FILE", "dealer", (), 0),
    ("cancel dealt --reason x", "dealer", (), 0),
    ("collect dealt --wait 0", "collector", (), 8),
    ("collect dealt --wait 100ms", "collector", (), 8),
    ("status", "auditor", ("admin",), 0),
    ("status dealt", "auditor", ("admin",), 0),
    ("prune --older-than 1d", "admin", (), 0)]


@pytest.mark.parametrize("command,needed,also,code", COMMANDS, ids=[command for command, *_ in COMMANDS])
def test_a_command_needs_its_role_and_no_more(lab, users, command, needed, also, code):
    cli = Cli(lab)
    cli.known_nodes(2)
    lab.db.conn.execute("SELECT quorate.open_round('dealt', 1, nonce => 77, round_deadline => '1 h')")
    words = command.replace("KEY", wire.KeyPair().public_text).replace("1=FILE", cli.share(1)).split()
    for role, user in users.items():
        if role in (needed, *also):
            continue
        error = cli.fails(1, *words, conninfo=conninfo_of(lab, user))
        assert "permission denied" in error, error
        assert f"needs the role quorate_{needed}" in error and f'GRANT quorate_{needed} TO "{user}"' in error, error
    for role in (*also, needed):
        cli.ends(code, *words, conninfo=conninfo_of(lab, users[role]))


def test_a_collector_waits_for_the_end_with_nothing_but_its_role(lab, users):
    node, _ = lab.node(), lab.processes.coordinator(conninfo_of(lab, users["coordinator"]), lab.key_file, "limited")
    lab.db.open(1, "waited", round_deadline="20 s")
    collector = subprocess.Popen([programs.program("quorate"), "collect", "waited", "--db", conninfo_of(lab, users["collector"])],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=programs.environment(), cwd="/")
    with connect(lab, users["dealer"]) as dealer:
        nonce = lab.db.round("waited")["nonce"]
        verdict = dealer.execute("SELECT verdict FROM quorate.distribute('waited', %s, %s, %s)", [nonce, [1], [b"share"]]).fetchone()
    assert verdict == ("accepted",)
    assert collector.communicate(timeout=30) == ("1\n", "") and collector.returncode == 0
    assert node.requests


def test_a_coordinator_without_its_role_says_so_and_works_once_it_has_it(lab, users):
    lab.node()
    lab.db.submit(1, [lab.nodes[0]], "waiting")
    coordinator = lab.processes.coordinator(conninfo_of(lab, users["nobody"]), lab.key_file, "limited", ready=False)
    line = coordinator.wait_line("beat_failed")
    assert "42501" in line and "quorate_coordinator" in line, line
    lab.db.conn.execute(f'GRANT quorate_coordinator TO "{users["nobody"]}"')
    assert lab.db.wait_settled("waiting")["state"] == "complete"


def test_migrate_is_for_the_owner(lab, users):
    for user in users.values():
        for option in ("--status", "--verify"):
            done = lab.processes.command("migrate", option, conninfo=conninfo_of(lab, user))
            assert done.returncode == 1 and "permission denied" in done.stderr, (user, option, done)


# What only a real session can try.

def test_who_is_logged_in_stays_who_he_is(lab, users):
    lab.node()
    lab.db.submit(1, [lab.nodes[0]], "kept", round_deadline="1 s")
    for user in users.values():
        with connect(lab, user) as conn:
            for attack in ("SET SESSION AUTHORIZATION postgres", "SET ROLE postgres", "SET ROLE quorate_admin" if "admin" not in user else "SET ROLE postgres",
                           "COPY (SELECT payload FROM quorate_store.envelope) TO STDOUT", "COPY quorate_store.envelope FROM STDIN",
                           "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(attack)
            assert conn.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'postgres' AND query NOT LIKE '<insuff%%' "
                                "AND query <> ''").fetchone() == (0,)


def blocks_of_the_manual():
    section = MANUAL.read_text().split("## Who may do what")[1].split("\n## ")[0]
    return section, re.findall(r"```sql\n(.*?)```", section, flags=re.S)


def test_a_squatted_lock_stalls_rounds_and_completes_none_until_locks_are_taken_away(lab, users):
    """Anyone who may connect can hold the lock that a coordinator's batches enter by; the manual's block ends that."""
    lab.punctual = False
    node, coordinator = lab.node(), lab.processes.coordinator(conninfo_of(lab, users["coordinator"]), lab.key_file, "limited")
    lock = "SELECT pg_advisory_lock(1903521650, i) FROM generate_series(1, 20) i"
    with connect(lab, users["nobody"]) as squatter:
        squatter.execute(lock)
        lab.db.submit(1, [node], "squatted", round_deadline="1 s", retry_budget=1, max_backoff="50 ms")
        assert lab.db.wait_state("squatted", "stalled") and not node.requests
        with connect(lab, users["collector"]) as collector, pytest.raises(psycopg.Error) as refused:
            collector.execute("SELECT quorate.collect('squatted')")
        assert refused.value.sqlstate == "QR001"
    assert lab.db.wait_settled(lab.db.submit(1, [node]), timeout=60)["state"] == "complete", "it goes on by itself"
    for block in blocks_of_the_manual()[1]:
        if "pg_(try_)?advisory_" in block:
            lab.db.conn.execute(block)
            break
    else:
        raise AssertionError("the manual has no such block")
    with connect(lab, users["nobody"]) as squatter, pytest.raises(psycopg.errors.InsufficientPrivilege):
        squatter.execute(lock)
    coordinator.stop()
    lab.processes.coordinator(conninfo_of(lab, users["coordinator"]), lab.key_file, "again")
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert lab.processes.command("migrate", "--verify", conninfo=lab.db.conninfo).returncode == 0
    assert lab.processes.command("migrate", conninfo=lab.db.conninfo).returncode == 0


def test_the_manual_says_what_the_catalog_has(lab):
    section, _ = blocks_of_the_manual()
    table = {row[0].strip(" `"): row[1:] for row in (line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `quorate_"))}
    assert set(table) == {f"quorate_{role}" for role in ROLES}
    for role, (calls, reads, commands) in table.items():
        may = lab.db.rows("SELECT DISTINCT pronamespace::regnamespace::text AS schema, proname AS name FROM pg_proc WHERE pronamespace::regnamespace::text "
                          "LIKE 'quorate%%' AND has_function_privilege(%s, oid, 'EXECUTE')", role)
        if "every function" in calls:
            (schema,) = re.findall(r"`(\w+)`", calls)
            assert {row["schema"] for row in may} == {schema}
        else:
            assert {row["name"] for row in may} == set(re.findall(r"`(\w+)`", calls)), role
        readable = {(row["view"], row["column"]) for row in lab.db.rows(
            "SELECT c.relname AS view, a.attname AS column FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE c.relkind = 'v' AND c.relnamespace = 'quorate'::regnamespace AND has_column_privilege(%s, c.oid, a.attnum, 'SELECT')", role)}
        everything = {(row["view"], row["column"]) for row in lab.db.rows(
            "SELECT table_name AS view, column_name AS column FROM information_schema.columns WHERE table_schema = 'quorate'")}
        view, *columns = re.findall(r"`(\w+)`", reads) or [None]
        assert readable == (everything if "every view" in reads else {(view, column) for column in columns}), role
        for command, needed, also, _ in COMMANDS:
            name = " ".join(command.split()[:2]) if command.startswith("node") else command.split()[0]
            listed = f"`{name}`" in commands or f"`{name.split()[0]}`" in commands
            assert listed == (role[8:] in (needed, *also)), (role, command)


# How the roles come to be.

@pytest.fixture(scope="module")
def bare():
    """A server on which quorate has never been."""
    with Cluster() as cluster:
        yield cluster


def migrate(conninfo, *options):
    return subprocess.run([programs.program("quorate"), "migrate", *options, "--db", conninfo], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, env=programs.environment(), cwd="/", check=False)


def test_an_owner_who_may_not_make_roles_is_told_what_to_do(bare):
    with bare.connect() as admin:
        admin.execute("CREATE ROLE plain_owner LOGIN")
        admin.execute("CREATE DATABASE owned OWNER plain_owner")
        conninfo = bare.conninfo("owned").replace("user=postgres", "user=plain_owner")
        done = migrate(conninfo)
        assert done.returncode == 0 and "plain_owner may not create roles" in done.stderr, done
        (statements,) = re.findall(r"run `(CREATE ROLE [^`]*)`", done.stderr)
        assert statements.count("CREATE ROLE quorate_") == 5
        verify = migrate(conninfo, "--verify")
        assert verify.returncode == 1 and "95_roles.sql is pending" in verify.stderr
        assert "may not create roles" in migrate(conninfo).stderr, "it says so until it is done"
        admin.execute(statements)
        assert migrate(conninfo).stderr.count("warns") == 0
        assert migrate(conninfo, "--verify").returncode == 0 and migrate(conninfo).stdout.endswith("nothing to do\n")
        with bare.connect("owned") as conn:
            assert conn.execute("SELECT has_function_privilege('quorate_dealer', 'quorate.cancel_round(text, text)', 'EXECUTE')").fetchone() == (True,)
            conn.execute("DROP OWNED BY " + ", ".join(f"quorate_{role}" for role in ROLES))
        admin.execute("DROP ROLE " + ", ".join(f"quorate_{role}" for role in ROLES))


@pytest.mark.parametrize("first_commits", [True, False])
def test_two_databases_make_the_roles_at_the_same_moment(bare, first_commits):
    """The second migrator waits for the first one's role, and takes it as it is, or makes its own when that came to nothing."""
    name = bare.create_database("template0")
    done = []
    with bare.connect() as first, bare.connect() as watch:
        first.execute("BEGIN")
        first.execute("CREATE ROLE quorate_collector")
        second = threading.Thread(target=lambda: done.append(migrate(bare.conninfo(name), "--lock-timeout", "30s")))
        second.start()
        while not watch.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = 'quorate' AND wait_event_type = 'Lock'").fetchall():
            assert second.is_alive(), done
        first.execute("COMMIT" if first_commits else "ROLLBACK")
        second.join(60)
        assert done[0].returncode == 0 and "warns" not in done[0].stderr, done
        assert watch.execute("SELECT count(*) FROM pg_roles WHERE rolname = ANY (%s)", [[f"quorate_{role}" for role in ROLES]]).fetchone() == (5,)
        with bare.connect(name) as conn:
            assert conn.execute("SELECT has_function_privilege('quorate_collector', 'quorate.collect(text, int)', 'EXECUTE')").fetchone() == (True,)
        bare.drop_database(name)
        watch.execute("DROP ROLE " + ", ".join(f"quorate_{role}" for role in ROLES))
