"""A primary and its synchronous standby, which can be restarted, failed over and rebuilt; one conninfo for both."""

import shutil
import subprocess
import time

import psycopg
from harness.cluster import BIN, Cluster, as_server_user

STANDBY = "standby"
DATABASE = "quorate_template"  # the one that create_template migrates
SETTINGS = {"wal_log_hints": "on", "wal_keep_size": "512MB", "wal_retrieve_retry_interval": "200ms", "max_wal_senders": 10,
            "log_line_prefix": "%m [%p] %a ", "shared_buffers": "64MB", "fsync": "on"}
IN_SYNC = """SELECT count(*) FROM pg_stat_replication
              WHERE application_name = 'standby' AND sync_state = 'sync' AND state = 'streaming' AND flush_lsn >= pg_current_wal_flush_lsn()"""


def _as_server(*command) -> None:
    done = subprocess.run([*as_server_user(), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd="/", check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stdout.decode(errors='replace')}")


class Member(Cluster):
    """One server of the pair; made from nothing, or as the standby of another."""

    def __init__(self, name: str, source: "Member | None" = None):
        self.name, self.source = name, source
        super().__init__(durable=True, settings=SETTINGS)

    def _initialise(self) -> None:
        if self.source is None:
            super()._initialise()
            return
        self.socket_dir.mkdir()
        self.log.touch()
        for path in (self.folder, self.socket_dir, self.log):
            shutil.chown(path, "postgres", "postgres")
        self.copy(self.source)

    def copy(self, source: "Member") -> None:
        """Becomes a standby of `source` from a base backup."""
        shutil.rmtree(self.data, ignore_errors=True)
        _as_server(BIN / "pg_basebackup", "-D", self.data, "-d", source.upstream, "-X", "stream", "-c", "fast", "-R", "--no-sync")

    def rewind(self, source: "Member") -> None:
        """Becomes a standby of `source` by undoing what only this server has; falls back to a base backup."""
        try:
            _as_server(BIN / "pg_rewind", "--target-pgdata", self.data, "--source-server", source.upstream, "-R", "--no-sync")
        except RuntimeError as error:
            self.note(f"pg_rewind failed, so a base backup is taken: {error}")
            self.copy(source)

    def promote(self) -> None:
        _as_server(BIN / "pg_ctl", "promote", "-w", "-D", self.data, "-s")

    def note(self, text: str) -> None:
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(text + "\n")

    @property
    def upstream(self) -> str:
        return f"host={self.socket_dir} port={self.port} user=postgres dbname=postgres application_name={STANDBY}"

    @property
    def socket(self) -> str:
        return f"{self.socket_dir}/.s.PGSQL.{self.port}"


class Pair:
    """`on_change(member, up)` is called before a server goes and after it is back, for relays that stand before it."""

    def __init__(self, on_change=lambda member, up: None):
        self.members: list[Member] = []
        self.on_change = on_change
        try:
            self.primary = self._add(Member("pg1"))
            self.primary.create_template()
            with self.primary.connect() as conn:
                # Copied to the standby, which needs it once it is the primary; in force only when there is one to wait for.
                conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 ({STANDBY})'")
                self.standby = self._add(Member("pg2", self.primary))
                conn.execute("SELECT pg_reload_conf()")
            self.wait_in_sync()
        except BaseException:
            self.close()
            raise

    def _add(self, member: Member) -> Member:
        self.members.append(member)
        return member

    def conninfo(self, database: str = DATABASE) -> str:
        return self.conninfo_at([(str(m.socket_dir), m.port) for m in self.members], database)

    @staticmethod
    def conninfo_at(places: list[tuple], database: str = DATABASE) -> str:
        return (f"host={','.join(host for host, _ in places)} port={','.join(str(port) for _, port in places)} user=postgres "
                f"dbname={database} target_session_attrs=read-write connect_timeout=2")

    def wait_in_sync(self, timeout: float = 60) -> None:
        """Until commits are replicated again, and all that was committed is: from here on a failover loses nothing."""
        deadline = time.monotonic() + timeout
        with self.primary.connect() as conn:
            while conn.execute(IN_SYNC).fetchone()[0] != 1:
                if time.monotonic() > deadline:
                    raise RuntimeError("the standby does not catch up:\n" + self.logs()[-3000:])
                time.sleep(0.02)

    def wait_answer(self, timeout: float = 60) -> None:
        """Until the primary answers: after a crash of one backend it recovers first."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                time.sleep(0.1)  # the postmaster has to notice the crash
                self.primary.connect().close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise

    def stop(self, member: Member, mode: str) -> None:
        self.on_change(member, False)
        member.stop(mode, timeout=60)

    def start(self, member: Member) -> None:
        member.start(timeout=60)
        self.on_change(member, True)

    def fail_over(self, how: str) -> None:
        """The primary crashes, the standby takes its place, and the old primary comes back as its standby."""
        self.wait_in_sync()
        old, new = self.primary, self.standby
        self.stop(old, "immediate")
        new.promote()
        self.primary, self.standby = new, old
        with new.connect() as conn:
            conn.execute("CHECKPOINT")  # pg_rewind reads the new timeline from the control file
        getattr(old, how)(new)
        self.start(old)
        self.wait_in_sync()

    def logs(self) -> str:
        return "\n".join(f"--- {m.name}\n{m.read_log()}" for m in self.members)

    def close(self) -> None:
        for member in reversed(self.members):
            member.close()
