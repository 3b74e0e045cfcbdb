"""A private throwaway PostgreSQL: on a Unix socket only, never as root, gone when closed."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg

from . import build as programs

BIN = pathlib.Path("/usr/lib/postgresql/15/bin")
TEMPLATE = "quorate_template"
DEPLOYMENT = "test"
MEMORY = pathlib.Path("/dev/shm")
MEMORY_ROOM = 4 << 30  # bytes: what all clusters of a test run stay well below together
MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def as_server_user() -> list[str]:
    """PostgreSQL refuses to run as root; and it ends with us, should we be killed."""
    command = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        command += ["--reuid", "postgres", "--regid", "postgres", "--init-groups"]
    return command + ["--"]


def folder_for(durable: bool) -> str:
    """Where a cluster's folder is made: what is never synced needs no disk. Short: socket paths end at 107 bytes."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_ROOM
    return str(MEMORY) if roomy and not durable else "/tmp"


class Cluster:
    """`durable`: fsync on, for tests of crashes; otherwise off, for speed. `copy_of`: begins with the data of that one,
    which is durable too, and stopped."""

    def __init__(self, build: pathlib.Path = programs.BUILD, durable: bool = False, settings: dict | None = None,
                 copy_of: "Cluster | None" = None):
        self.build = build
        self.durable = durable
        self.copy_of = copy_of
        self.port = 5432  # names the socket file in a folder of our own; nobody listens on TCP
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qr-", dir=folder_for(durable)))
        self.socket_dir = self.folder / "s"
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.settings = {
            "listen_addresses": "", "unix_socket_directories": str(self.socket_dir), "port": self.port,
            "fsync": "on" if durable else "off", "shared_buffers": "32MB", "max_connections": 200, "jit": "off",
            "log_statement": "none", "log_min_messages": "warning", "log_checkpoints": "off", "timezone": "UTC", **(settings or {})}
        self.process: subprocess.Popen | None = None
        self._databases = 0
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def _make_folders(self) -> None:
        self.socket_dir.mkdir()
        self.log.touch()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (self.folder, self.socket_dir, self.log):
                os.chown(path, user.pw_uid, user.pw_gid)

    def _initialise(self) -> None:
        self._make_folders()
        if self.copy_of is not None:
            subprocess.run(["cp", "-a", self.copy_of.data, self.data], stdin=subprocess.DEVNULL, check=True)
            return
        done = subprocess.run(
            [*as_server_user(), BIN / "initdb", "-D", self.data, "--auth=trust", "--username=postgres", "--encoding=UTF8",
             "--locale=C.UTF-8", "--no-sync", "--no-instructions"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", check=False)
        if done.returncode != 0:
            raise RuntimeError("initdb failed: " + done.stdout.decode(errors="replace"))

    def start(self, timeout: float = 30) -> None:
        options = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*as_server_user(), BIN / "postgres", "-D", self.data, *options],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                            env=programs.environment())
        deadline = time.monotonic() + timeout
        while True:
            try:
                psycopg.connect(self.conninfo("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{self.read_log()}") from error
                time.sleep(0.02)

    def stop(self, mode: str = "fast", timeout: float = 30) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(MODES[mode])
            self.process.wait(timeout)
        self.process = None

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        self.stop("immediate")
        for _ in range(100):  # a child of the server may still be writing its last file
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.folder} cannot be removed")

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""  # a test may have closed it

    def conninfo(self, database: str) -> str:
        return f"host={self.socket_dir} port={self.port} user=postgres dbname={database}"

    def connect(self, database: str = "postgres", **options) -> psycopg.Connection:
        return psycopg.connect(self.conninfo(database), autocommit=True, **options)

    def create_template(self, extensions: tuple[str, ...] = (), deployment: str = DEPLOYMENT) -> None:
        """One migrated database, of which every test gets a copy."""
        with self.connect() as conn:
            conn.execute(f'CREATE DATABASE "{TEMPLATE}"')
        migrated = subprocess.run(
            [programs.program("quorate", self.build), "migrate", "--db", self.conninfo(TEMPLATE), "--deployment", deployment],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=programs.environment(),
            timeout=60, check=False)
        if migrated.returncode != 0:
            raise RuntimeError(f"quorate migrate ended with {migrated.returncode}: {migrated.stdout.decode(errors='replace')}")
        with self.connect(TEMPLATE) as conn:
            for extension in extensions:
                conn.execute(f'CREATE EXTENSION IF NOT EXISTS "{extension}"')

    def create_database(self, template: str = TEMPLATE) -> str:
        self._databases += 1
        name = f"t{self._databases}"
        with self.connect() as conn:
            # Copied as files where that is quicker: with fsync it would wait for two checkpoints.
            strategy = "" if self.durable else " STRATEGY file_copy"
            conn.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{strategy}')
        return name

    def drop_database(self, name: str) -> None:
        with self.connect() as conn:
            conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def terminate_backends(self, database: str) -> int:
        """Ends every other session of the database; returns how many there were."""
        with self.connect() as conn:
            return len(conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                                    [database]).fetchall())
