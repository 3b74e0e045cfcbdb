"""A private PgBouncer in front of a cluster: on a Unix socket only, never as root, gone when closed."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg
from psycopg.rows import dict_row

from . import build as programs
from .cluster import Cluster, as_server_user

PROGRAM = "/usr/sbin/pgbouncer"


class Bouncer:
    """`mode`: transaction or session. `settings`: of its section [pgbouncer]."""

    def __init__(self, cluster: Cluster, mode: str = "transaction", settings: dict | None = None):
        self.cluster, self.port = cluster, 6432  # names the socket file in a folder of our own
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qb-", dir="/tmp"))  # short: socket paths end at 107 bytes
        self.file, self.log = self.folder / "ini", self.folder / "log"
        self.settings = {
            "pool_mode": mode, "listen_addr": "", "unix_socket_dir": self.folder, "listen_port": self.port, "auth_type": "trust",
            "auth_file": self.folder / "users", "admin_users": "postgres", "logfile": self.log, "max_client_conn": 500,
            "default_pool_size": 20, "server_round_robin": 0, **(settings or {})}
        self.process: subprocess.Popen | None = None
        try:
            self._configure()
            self.start()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        lines = ["[databases]", f"* = host={self.cluster.socket_dir} port={self.cluster.port}", "[pgbouncer]",
                 *(f"{key} = {value}" for key, value in self.settings.items())]
        self.file.write_text("\n".join(lines) + "\n")
        (self.folder / "users").write_text('"postgres" ""\n"quorate_coordinator" ""\n"quorate_dealer" ""\n')
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (self.folder, self.file, self.folder / "users"):
                os.chown(path, user.pw_uid, user.pw_gid)

    def start(self, timeout: float = 30) -> None:
        self.process = subprocess.Popen([*as_server_user(), PROGRAM, "-q", self.file], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env=programs.environment())
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.admin("SHOW VERSION")
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PgBouncer did not start: {error}\n{self.read_log()}") from error
                time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30) -> None:
        """SIGTERM: at once, whoever is connected."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout)
        self.process = None

    def restart(self, number: int = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)

    def __enter__(self) -> "Bouncer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def conninfo(self, database: str, user: str = "postgres") -> str:
        return f"host={self.folder} port={self.port} user={user} dbname={database}"

    def connect(self, database: str, user: str = "postgres", **options) -> psycopg.Connection:
        return psycopg.connect(self.conninfo(database, user), autocommit=True, prepare_threshold=None, **options)

    def admin(self, command: str) -> list[dict]:
        """A command of its console, which knows the simple protocol only."""
        with psycopg.connect(self.conninfo("pgbouncer"), autocommit=True, cursor_factory=psycopg.ClientCursor,
                             row_factory=dict_row) as conn:
            return conn.execute(command).fetchall()
