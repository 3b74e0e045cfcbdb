"""The migrator: first run, many at once, refusals, locks, broken connections; and the committed dump of the schema."""

import hashlib
import os
import subprocess
import threading
import time

import pytest
from harness import build as programs
from harness.cluster import BIN

ROOT = programs.ROOT
DUMP = ROOT / "docs" / "schema.sql"
MIGRATIONS = sorted(path for path in (ROOT / "migrations").glob("*.sql") if not path.name.startswith("0000"))
REPEATABLES = sorted((ROOT / "sql").glob("*.sql"))
LOCK_KEY = int.from_bytes(b"quorate", "big")


class Empty:
    """A database without anything of quorate."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.name = cluster.create_database(template="template0")
        self.conninfo = cluster.conninfo(self.name)

    def start(self, *arguments, conninfo=None):
        return subprocess.Popen(
            [programs.program("quorate"), "migrate", *arguments, "--db", conninfo or self.conninfo],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=programs.environment(), cwd="/")

    def migrate(self, *arguments, code=0, conninfo=None):
        """Runs it to its end; (stdout, stderr)."""
        process = self.start(*arguments, conninfo=conninfo)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, f"{process.returncode} instead of {code}: {out}\n{err}"
        return out, err

    def connect(self):
        return self.cluster.connect(self.name)

    def rows(self, sql, *parameters):
        with self.connect() as conn:
            return conn.execute(sql, parameters).fetchall()

    def run(self, sql):
        with self.connect() as conn:
            conn.execute(sql)

    def everything(self):
        """All that the migrator keeps, with the time of each row."""
        return (self.rows("SELECT number, name, encode(sha256, 'hex'), applied_at, xmin::text FROM quorate_store.migration "
                          "ORDER BY number"),
                self.rows("SELECT name, encode(sha256, 'hex'), applied_at, xmin::text FROM quorate_store.repeatable "
                          "ORDER BY name"),
                self.rows("SELECT oid::regprocedure::text, xmin::text FROM pg_proc WHERE pronamespace::regnamespace::text "
                          "LIKE 'quorate%%' ORDER BY 1"))

    def wait(self, what, look, timeout=20):
        deadline = time.monotonic() + timeout
        while True:
            found = look()
            if found:
                return found
            assert time.monotonic() < deadline, f"never happened: {what}"
            time.sleep(0.02)

    def pid_of_migrator(self, condition):
        """The backend of the one migrator at work, once it meets an SQL condition over pg_stat_activity."""
        ((pid,),) = self.wait(condition, lambda: self.rows(
            f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'quorate' "
            f"AND {condition}"))
        return pid

    def close(self):
        self.cluster.drop_database(self.name)


@pytest.fixture
def empty(cluster):
    database = Empty(cluster)
    yield database
    database.close()


@pytest.fixture
def migrated(cluster):
    database = Empty(cluster)
    database.migrate("--deployment", "mine")
    yield database
    database.close()


def one_line(err):
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# The first run.

def test_first_run_applies_every_file_byte_for_byte(empty):
    out, err = empty.migrate()
    migrations, repeatables, _ = empty.everything()
    assert [(number, name, sha) for number, name, sha, *_ in migrations] == \
        [(number, path.name, sha256_of(path)) for number, path in enumerate(MIGRATIONS, 1)]
    assert [(name, sha) for name, sha, *_ in repeatables] == [(path.name, sha256_of(path)) for path in REPEATABLES]
    assert all(f"applying migrations/{path.name}" in err for path in MIGRATIONS)
    ((deployment, version),) = empty.rows("SELECT deployment_id, schema_version FROM quorate.deployment")
    assert len(deployment) == 16 and deployment.isalnum() and deployment == deployment.lower()
    assert version == len(MIGRATIONS)
    assert out == f"deployment {deployment}, schema version {version}: migrated\n"


def test_two_databases_draw_two_deployment_ids(empty, cluster):
    other = Empty(cluster)
    try:
        empty.migrate()
        other.migrate()
        assert empty.rows("SELECT deployment_id FROM quorate.deployment") != \
            other.rows("SELECT deployment_id FROM quorate.deployment")
    finally:
        other.close()


def test_second_run_changes_nothing(migrated):
    before = migrated.everything()
    out, err = migrated.migrate()
    assert out.endswith(": nothing to do\n") and err == ""
    migrated.migrate("--deployment", "mine")
    assert migrated.everything() == before


def test_another_deployment_id_is_refused(migrated):
    before = migrated.everything()
    _, err = migrated.migrate("--deployment", "yours", code=2)
    assert '"mine"' in one_line(err) and '"yours"' in err
    assert migrated.everything() == before


@pytest.mark.parametrize("wrong", ["a b", "a:b", "x" * 129, "é"])
def test_what_is_no_deployment_id_is_refused(empty, wrong):
    _, err = empty.migrate("--deployment", wrong, code=2)
    assert "no deployment id" in one_line(err)
    assert empty.rows("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'quorate%%'") == []


def test_a_database_of_another_encoding_is_refused(empty, cluster):
    """The history is made of texts in UTF8, and in such a database any dealer could write one that is none."""
    with cluster.connect() as conn:
        conn.execute(f"""CREATE DATABASE "{empty.name}-c" TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'""")
    said = empty.migrate(code=1, conninfo=cluster.conninfo(f"{empty.name}-c"))[1]
    assert "SQL_ASCII" in said and "UTF8" in said
    with cluster.connect(f"{empty.name}-c") as conn:
        assert conn.execute("SELECT count(*) FROM pg_namespace WHERE nspname ~ '^quorate'").fetchone() == (0,)
    cluster.drop_database(f"{empty.name}-c")


def test_result_as_json(empty):
    assert empty.migrate("--json", "--deployment", "mine")[0] == (
        f'{{"deployment_id": "mine", "schema_version": {len(MIGRATIONS)}, "migrations_applied": {len(MIGRATIONS)}, '
        f'"sql_files_applied": {len(REPEATABLES)}}}\n')


# Status and verify.

def test_status_and_verify_change_nothing(empty):
    out, _ = empty.migrate("--status")
    assert out.count(" pending ") == len(MIGRATIONS) + len(REPEATABLES) and "not fixed yet" in out
    _, err = empty.migrate("--verify", code=1)
    assert "is pending" in err
    assert empty.rows("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'quorate%%'") == []

    empty.migrate("--deployment", "mine")
    before = empty.everything()
    out, _ = empty.migrate("--status")
    assert out.startswith("deployment mine\n") and " pending " not in out
    assert out.count(" applied ") == len(MIGRATIONS) + len(REPEATABLES)
    assert empty.migrate("--verify") == ("", "")
    assert empty.everything() == before


def test_verify_tells_what_is_altered(migrated):
    migrated.run("UPDATE quorate_store.repeatable SET sha256 = sha256('x') WHERE name = '00_begin.sql'")
    _, err = migrated.migrate("--verify", code=1)
    assert "00_begin.sql is altered" in err
    out, _ = migrated.migrate("--status", "--json")
    assert '"name": "00_begin.sql", "state": "altered"' in out


def test_verify_needs_no_more_than_reading(migrated, cluster):
    role = f"reader_{migrated.name}"
    migrated.run(f'CREATE ROLE "{role}" LOGIN; GRANT USAGE ON SCHEMA quorate_store TO "{role}"; GRANT SELECT ON '
                 f'quorate_store.migration, quorate_store.repeatable, quorate_store.deployment TO "{role}"')
    try:
        migrated.migrate("--verify", conninfo=migrated.conninfo.replace("user=postgres", f"user={role}"))
    finally:
        migrated.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.parametrize("wrong", [("--status", "--verify"), ("--status", "--deployment", "x"), ("extra",),
                                   ("--lock-timeout", "0s"), ("--lock-timeout", "5")])
def test_wrong_usage(empty, wrong):
    one_line(empty.migrate(*wrong, code=2)[1])


# Refusals.

def test_an_altered_migration_is_refused(migrated):
    migrated.run("UPDATE quorate_store.migration SET sha256 = sha256('x') WHERE number = 1")
    before = migrated.everything()
    _, err = migrated.migrate(code=1)
    assert MIGRATIONS[0].name in one_line(err) and "another content" in err
    assert migrated.everything() == before


def test_a_newer_schema_is_refused(migrated):
    migrated.run("INSERT INTO quorate_store.migration (number, name, sha256) VALUES (99, '0099_later.sql', sha256('x'))")
    migrated.run("UPDATE quorate_store.repeatable SET sha256 = sha256('x')")  # which alone would be applied again
    before = migrated.everything()
    _, err = migrated.migrate(code=1)
    assert "0099_later.sql" in one_line(err) and "newer" in err
    assert migrated.everything() == before


def test_a_gap_is_refused(migrated):
    migrated.run("DELETE FROM quorate_store.migration WHERE number = 1")
    _, err = migrated.migrate(code=1)
    assert MIGRATIONS[0].name in one_line(err) and "gap" in err


# The files of sql/.

@pytest.mark.parametrize("change", [
    "UPDATE quorate_store.repeatable SET sha256 = sha256('x') WHERE name = '99_end.sql'",
    "DELETE FROM quorate_store.repeatable WHERE name = '99_end.sql'",
    "INSERT INTO quorate_store.repeatable (name, sha256) VALUES ('77_gone.sql', sha256('x'))"])
def test_any_difference_applies_all_files_of_sql_and_keeps_grants(migrated, change):
    role = f"dealer_{migrated.name}"
    migrated.run(f'CREATE ROLE "{role}"; GRANT EXECUTE ON FUNCTION quorate.cancel_round TO "{role}"')
    try:
        before = migrated.everything()
        migrated.run("CREATE FUNCTION quorate.cancel_round(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")  # an old overload
        migrated.run(change)
        migrated.migrate()
        after = migrated.everything()
        assert after[0] == before[0]
        assert [row[:2] for row in after[1]] == [row[:2] for row in before[1]]
        assert len({row[3] for row in after[1]} - {row[3] for row in before[1]}) == 1
        assert [name for name, _ in after[2]] == [name for name, _ in before[2]]
        assert migrated.rows("SELECT has_function_privilege(%s, 'quorate.cancel_round(text, text)', 'EXECUTE'), "
                             "has_function_privilege(%s, 'quorate.set_node_enabled(int, boolean)', 'EXECUTE')",
                             role, role) == [(True, False)]
    finally:
        migrated.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


# Many at once, and locks.

def test_ten_at_once_on_an_empty_database(empty):
    processes = [empty.start() for _ in range(10)]
    ended = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 10, ended
    results = sorted(out.split(": ")[1].strip() for out, _ in ended)
    assert results == ["migrated"] + ["nothing to do"] * 9
    assert len({out.split(",")[0] for out, _ in ended}) == 1
    migrations, repeatables, _ = empty.everything()
    assert (len(migrations), len(repeatables)) == (len(MIGRATIONS), len(REPEATABLES))


def test_ten_at_once_with_ten_deployment_ids(empty):
    processes = [empty.start("--deployment", f"d{number}") for number in range(10)]
    for process in processes:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in processes) == [0] + [2] * 9


def test_waiting_for_another_migrator_holds_no_snapshot(empty):
    with empty.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        process = empty.start()
        try:
            # In one look: it asks for the lock again and again, and has nothing open in between.
            empty.pid_of_migrator("query LIKE '%%pg_try_advisory_lock%%' AND state = 'idle' AND wait_event_type = 'Client' "
                                  "AND backend_xmin IS NULL")
            assert process.poll() is None
            assert empty.rows("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'quorate%%'") == []
            other.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
            _, err = process.communicate(timeout=30)
            assert process.returncode == 0 and "waiting for it to end" in err
        finally:
            process.kill()
            process.wait()


def test_a_lock_that_is_not_granted_is_an_error_that_can_be_repeated(migrated):
    migrated.run("UPDATE quorate_store.repeatable SET sha256 = sha256('x') WHERE name = '99_end.sql'")
    before = migrated.everything()
    with migrated.connect() as reader, reader.transaction():
        reader.execute("SELECT * FROM quorate.rounds")
        started = time.monotonic()
        _, err = migrated.migrate("--lock-timeout", "200ms", code=1)
        assert 0.2 <= time.monotonic() - started < 10
        assert "within 200 ms" in err and "run this again" in err
        assert migrated.everything() == before
    migrated.migrate("--lock-timeout", "200ms")
    migrated.migrate("--verify")


def test_even_reading_what_is_applied_waits_no_longer_than_lock_timeout(migrated):
    with migrated.connect() as other, other.transaction():
        other.execute("LOCK TABLE quorate_store.migration")
        _, err = migrated.migrate("--lock-timeout", "100ms", code=1)
        assert "within 100 ms" in one_line(err)
    migrated.migrate()


def test_a_lock_lost_between_two_transactions_stops_it(empty):
    """As behind a transaction pooler, where the next transaction may run in another session."""
    empty.run("""CREATE FUNCTION public.lose() RETURNS event_trigger LANGUAGE plpgsql AS
              $$ BEGIN PERFORM pg_advisory_unlock_all(); END $$;
              CREATE EVENT TRIGGER lose ON ddl_command_end WHEN TAG IN ('CREATE TYPE') EXECUTE FUNCTION public.lose()""")
    _, err = empty.migrate(code=1)
    assert "transaction pooler" in err.splitlines()[-1] and MIGRATIONS[1].name in err.splitlines()[-1]
    empty.run("DROP EVENT TRIGGER lose")
    assert empty.rows("SELECT number FROM quorate_store.migration") == [(1,)]
    empty.migrate()


# Broken in the middle.

def sabotage(database, statement):
    """Makes the first trigger of a migration run a statement: somewhere in the middle of the second one."""
    database.run(f"""CREATE FUNCTION public.sabotage() RETURNS event_trigger LANGUAGE plpgsql AS
                 $$ BEGIN {statement}; END $$;
                 CREATE EVENT TRIGGER sabotage ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER')
                 EXECUTE FUNCTION public.sabotage()""")


def assert_whole_number_applied(database):
    """What the tables say is there, is; and nothing of what they do not say."""
    applied = [number for (number,) in database.rows("SELECT number FROM quorate_store.migration ORDER BY number")]
    assert applied == [1]
    assert database.rows("SELECT to_regclass('quorate_store.round') IS NOT NULL, "
                         "(SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal), "
                         "(SELECT count(*) FROM quorate_store.repeatable)") == [(True, 0, 0)]


def test_a_connection_that_ends_in_the_middle_leaves_whole_migrations(empty):
    sabotage(empty, "PERFORM pg_sleep(60)")
    process = empty.start()
    try:
        pid = empty.pid_of_migrator("wait_event = 'PgSleep'")
        empty.rows("SELECT pg_terminate_backend(%s)", pid)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 7 and MIGRATIONS[1].name in err.splitlines()[-1]
    assert_whole_number_applied(empty)
    empty.run("DROP EVENT TRIGGER sabotage")
    empty.migrate()
    empty.migrate("--verify")


def test_a_migrator_that_is_killed_in_the_middle_leaves_whole_migrations(empty):
    sabotage(empty, "PERFORM pg_sleep(60)")
    process = empty.start()
    pid = None
    try:
        pid = empty.pid_of_migrator("wait_event = 'PgSleep'")
    finally:
        process.kill()
        process.wait()
    empty.rows("SELECT pg_terminate_backend(%s)", pid)  # or the server finds out a minute later
    empty.wait("the end of its session", lambda: not empty.rows("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
    assert_whole_number_applied(empty)
    empty.run("DROP EVENT TRIGGER sabotage")
    empty.migrate()
    empty.migrate("--verify")


def test_a_migration_that_fails_is_named_and_leaves_nothing(empty):
    sabotage(empty, "RAISE EXCEPTION 'no triggers here' USING HINT = 'Drop the event trigger.'")
    _, err = empty.migrate(code=1)
    last = err.splitlines()[-1]
    assert f"migrations/{MIGRATIONS[1].name}" in last and "no triggers here. Drop the event trigger." in last
    assert_whole_number_applied(empty)
    empty.run("DROP EVENT TRIGGER sabotage")
    empty.migrate()


def test_two_wait_for_one_that_is_slow(empty):
    sabotage(empty, "PERFORM pg_sleep(0.05)")
    results = []
    threads = [threading.Thread(target=lambda: results.append(empty.migrate()[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3


# The committed dump.

def dump_of(conninfo):
    return subprocess.run([ROOT / "scripts" / "dump-schema", conninfo], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=True, timeout=60, env={**programs.environment(), "PATH": f"{BIN}:{os.defpath}"}
                          ).stdout


def test_schema_dump_is_current(empty):
    empty.migrate()
    assert DUMP.read_text() == dump_of(empty.conninfo), \
        "docs/schema.sql is not what the migrations make: run `make schema-dump`"


def test_schema_dump_is_the_same_after_everything_was_applied_again(migrated):
    before = dump_of(migrated.conninfo)
    migrated.run("UPDATE quorate_store.repeatable SET sha256 = sha256('x')")
    migrated.migrate()
    assert dump_of(migrated.conninfo) == before
