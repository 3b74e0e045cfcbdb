"""A primary with a synchronous standby, addressed by one multi-host string; failover, demotion, and standbys that go and come."""

import pathlib
import subprocess
import time

import psycopg

from . import build as programs
from .cluster import BIN, Cluster, as_server_user

STANDBY = "standby"


class Standby(Cluster):
    """A streaming copy of another cluster, with a slot of its own."""

    def __init__(self, primary: Cluster, name: str = STANDBY, settings: dict | None = None):
        self.primary, self.name = primary, name
        super().__init__(primary.build, primary.settings["fsync"] == "on",
                         {"max_wal_senders": 8, "cluster_name": name, **(settings or {})})

    def _initialise(self) -> None:
        self._make_folders()
        source = f"host={self.primary.socket_dir} port={self.primary.port} user=postgres application_name={self.name}"
        done = subprocess.run(
            [*as_server_user(), BIN / "pg_basebackup", "-d", source, "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync",
             "-C", "-S", f"slot_{self.name}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", check=False,
            env=programs.environment())
        if done.returncode != 0:
            raise RuntimeError("pg_basebackup failed: " + done.stdout.decode(errors="replace"))


class Pair:
    """A Cluster to whoever uses it: `conninfo` names both hosts and finds the one that takes writes.

    A Lab can stand on it. Both end with it, so that no database needs to be dropped."""

    create_template = Cluster.create_template
    create_database = Cluster.create_database
    terminate_backends = Cluster.terminate_backends

    def __init__(self, build: pathlib.Path = programs.BUILD, synchronous: bool = True, settings: dict | None = None,
                 copy_of: Cluster | None = None):
        self.build, self.name, self.durable = build, STANDBY, True
        self._databases = 0
        self._spent: list[Cluster] = []
        self.standby: Cluster | None = None
        self.hosts: list[Cluster] = []  # in the order in which they were made: a failover changes roles, not the string
        self.primary = Cluster(build, durable=True, settings={"max_wal_senders": 8, **(settings or {})}, copy_of=copy_of)
        try:
            self.standby = Standby(self.primary)
            self.hosts = [self.primary, self.standby]
            if synchronous:
                self.set_synchronous(self.name)
            self.await_streaming()
        except BaseException:
            self.close()
            raise

    @property
    def clusters(self) -> list[Cluster]:
        return [one for one in (self.primary, self.standby, *self._spent) if one is not None]

    def conninfo(self, database: str, connect_timeout: int = 2) -> str:
        both = [one for one in self.hosts if one in (self.primary, self.standby)]
        return (f"host={','.join(str(one.socket_dir) for one in both)} port={','.join(str(one.port) for one in both)} "
                f"user=postgres dbname={database} target_session_attrs=read-write connect_timeout={connect_timeout}")

    def connect(self, database: str = "postgres", **options) -> psycopg.Connection:
        return psycopg.connect(self.conninfo(database), autocommit=True, **options)

    def set_synchronous(self, names: str) -> None:
        """synchronous_standby_names of the primary; "" for none."""
        with self.primary.connect() as conn:
            conn.execute("SET synchronous_commit = local")  # this very statement must not wait for a standby
            conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            conn.execute("SELECT pg_reload_conf()")

    def sync_states(self) -> list[str]:
        with self.primary.connect() as conn:
            return [state for (state,) in conn.execute("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")]

    def await_streaming(self, state: str | None = None, timeout: float = 30) -> None:
        """Until the standby streams, and is what `state` says: sync, async, ..."""
        deadline = time.monotonic() + timeout
        while not any(state in (None, found) for found in self.sync_states()):
            assert time.monotonic() < deadline, f"the standby does not stream as {state}: {self.sync_states()}\n{self.read_log()}"
            time.sleep(0.02)

    def hanging(self) -> int:
        """How many sessions of the primary wait for the standby to confirm their commit."""
        with self.primary.connect() as conn:
            return conn.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()[0]

    def promote(self) -> None:
        """The standby becomes the primary; what was the primary counts as spent (stop it first, or there are two)."""
        with self.standby.connect() as conn:
            assert conn.execute("SELECT pg_promote(true, 60)").fetchone()[0]
        self._swap()

    def _swap(self) -> None:
        self.primary, self.standby = self.standby, self.primary

    def failover(self, mode: str = "immediate") -> None:
        """The primary dies and the standby takes its place."""
        self.primary.stop(mode)
        self.promote()

    def rebuild_standby(self, synchronous: bool = True) -> None:
        """A new standby in the place of a dead one. (Its address is new: strings made before this do not name it.)"""
        if self.standby is not None:
            self.standby.stop("immediate")
            self._spent.append(self.standby)
        self.name = f"{STANDBY}{len(self._spent)}"
        self.standby = Standby(self.primary, self.name)
        self.hosts.append(self.standby)
        if synchronous:
            self.set_synchronous(self.name)
        self.await_streaming("sync" if synchronous else None)

    def drop_database(self, name: str) -> None:
        pass

    def read_log(self) -> str:
        return "\n".join(f"--- {one.folder}\n{one.read_log()}" for one in self.clusters)

    def close(self) -> None:
        for one in self.clusters[::-1]:
            one.close()

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_) -> None:
        self.close()
