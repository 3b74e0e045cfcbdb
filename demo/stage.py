"""The demo's stage: a private throwaway PostgreSQL, five custodians and two coordinators, all gone at the end."""

import contextlib
import csv
import io
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

import screen

DEPLOYMENT = "demo"
START_S = 15
STOP_S = 10
# custodian: its node id; 4b is the backup of node 4, with the same key
CUSTODIANS = {"1": 1, "2": 2, "3": 3, "4": 4, "4b": 4}


def postgres_programs() -> pathlib.Path:
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise screen.Failed("no PostgreSQL server is installed; scripts/install-deps demo installs it")
    return found[-1].parent


class Program:
    """A program that runs beside the demo. Should the demo be killed, it gets the signal `orphaned`."""

    def __init__(self, name: str, command: list[str], log: pathlib.Path, env: dict[str, str], orphaned: str = "KILL",
                 as_user: str | None = None):
        self.name, self.log, self.may_fail = name, log, False
        wrapper = ["setpriv", "--pdeathsig", orphaned]
        if as_user:
            wrapper += ["--reuid", as_user, "--regid", as_user, "--init-groups"]
        with open(log, "ab") as output:
            self.process = subprocess.Popen([*wrapper, "--", *command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output, env=env, cwd="/", start_new_session=True)

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def check(self) -> None:
        if self.process.poll() is not None:
            raise screen.Failed(f"{self.name} ended by itself, with status {self.process.returncode}")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.may_fail = True
        self.signal(signal.SIGKILL)
        self.process.wait(STOP_S)

    def wait(self) -> str | None:
        """Awaits its end after it was told to stop; returns what was wrong with that, if anything was."""
        try:
            status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not stop within {STOP_S} s"
        return None if status == 0 or self.may_fail else f"{self.name} ended with status {status}"


class Stage:
    """Everything that a scene acts upon. Use it in a with statement: on leaving, all is stopped and removed."""

    def __init__(self, build: pathlib.Path, cities: pathlib.Path):
        self.build, self.cities = build, cities
        self.programs: dict[str, Program] = {}
        self.database: Program | None = None
        short = len(tempfile.gettempdir()) < 60  # a socket's path has at most 107 bytes
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quorate-demo-", dir=None if short else "/tmp"))
        self.sockets, self.own = self.folder / "s", self.folder / "own"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "QUORATE_"))}
        self.env |= {"PGHOST": str(self.sockets), "PGPORT": "5432", "PGUSER": "postgres", "PGDATABASE": "postgres"}
        self.stores = {name: self.own / f"custodian-{name}.db" for name in CUSTODIANS}
        self.urls: dict[str, str] = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind, *_) -> None:
        problems = self.close()
        if problems and kind is None:
            raise screen.Failed("; ".join(problems))

    # -- starting and stopping

    def start(self) -> None:
        progress = screen.Progress("starting")
        self.own.mkdir(mode=0o700)
        shutil.copy(self.cities, self.own)
        self._start_postgres()
        progress.step("PostgreSQL")
        self.must(["quorate", "migrate", "--deployment", DEPLOYMENT])
        progress.step("schema")
        coordinator_key = self._key("coordinator")
        node_keys = {node: self._key(f"node-{node}") for node in sorted(set(CUSTODIANS.values()))}
        progress.step("keys")
        for name, node in CUSTODIANS.items():
            self._launch(f"custodian {name}", ["quorate-custodian", "--node-id", str(node), "--listen", "127.0.0.1:0",
                         "--port-file", f"{self.own}/port-{name}", "--store", f"{self.stores[name]}",
                         "--key", f"{self.own}/node-{node}.key", "--coordinator-key", coordinator_key])
        for name in CUSTODIANS:
            self.urls[name] = f"http://127.0.0.1:{self._port(name)}/"
        for node, key in node_keys.items():
            backup = ["--backup-url", self.urls[f"{node}b"]] if f"{node}b" in CUSTODIANS else []
            self.must(["quorate", "node", "add", str(node), "--url", self.urls[str(node)], "--key", key, *backup])
        progress.step(f"{len(CUSTODIANS)} custodians")
        for name in ("north", "south"):
            self._launch(name, ["quorate", "run", "--key", f"{self.own}/coordinator.key", "--name", name])
            self._until(lambda: self.value(f"SELECT bool_or(alive) FROM quorate.coordinators WHERE coordinator = '{name}'")
                        == "t", self.programs[name])
        progress.step("2 coordinators")
        progress.done()

    def _start_postgres(self) -> None:
        programs = postgres_programs()
        self.psql = str(programs / "psql")
        data, log, user = self.folder / "data", self.folder / "postgres.log", None
        self.sockets.mkdir()
        log.touch()
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = "postgres"
            self.folder.chmod(0o711)
            data.mkdir(mode=0o700)
            for path in (data, self.sockets, log):
                shutil.chown(path, user, user)
        switch = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"] if user else []
        done = subprocess.run([*switch, programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                               "--locale=C.UTF-8", "--no-sync"], capture_output=True, text=True, env=self.env, cwd="/",
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise screen.Failed(f"initdb failed: {done.stderr.strip()}")
        settings = {"listen_addresses": "", "unix_socket_directories": self.sockets, "port": self.env["PGPORT"],
                    "shared_buffers": "32MB", "timezone": "UTC", "log_min_messages": "warning"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.database = Program("PostgreSQL", [str(programs / "postgres"), "-D", str(data), *options], log, self.env,
                                "QUIT", user)
        self._until(lambda: subprocess.run([programs / "pg_isready", "-q"], env=self.env, check=False).returncode == 0,
                    self.database)

    def _launch(self, name: str, command: list[str]) -> None:
        log = self.own / f"{name.replace(' ', '-')}.log"
        self.programs[name] = Program(name, [str(self.build / command[0]), *command[1:]], log, self.env)

    def _key(self, name: str) -> str:
        return self.must(["quorate", "keygen", f"{self.own}/{name}.key"]).strip()

    def _port(self, name: str) -> int:
        file = self.own / f"port-{name}"
        self._until(lambda: file.exists() and file.read_text().strip(), self.programs[f"custodian {name}"])
        return int(file.read_text())

    @staticmethod
    def _until(condition, program: Program) -> None:
        """Looks again every 10 ms, as long as the program that has to make it true is running."""
        deadline = time.monotonic() + START_S
        while not condition():
            program.check()
            if time.monotonic() > deadline:
                raise screen.Failed(f"{program.name} did not start within {START_S} s")
            time.sleep(0.01)

    def close(self) -> list[str]:
        """Stops and removes everything, whatever state it is in; returns what did not end as it should."""
        for program in self.programs.values():
            program.signal(signal.SIGCONT)
            program.signal(signal.SIGTERM)
        problems = [program.wait() for program in self.programs.values()]
        if self.database:
            self.database.signal(signal.SIGINT)
            problems.append(self.database.wait())
        shutil.rmtree(self.folder, ignore_errors=True)
        return [problem for problem in problems if problem]

    def last_words(self) -> str:
        """The end of every log, for a demo that failed."""
        text = ""
        for program in [*self.programs.values(), *filter(None, [self.database])]:
            lines = program.log.read_text(errors="replace").splitlines()[-6:]
            text += f"--- {program.name}\n" + "".join(f"{line}\n" for line in lines)
        return text

    # -- acting

    def run(self, command: list[str], folder: pathlib.Path | None = None) -> subprocess.CompletedProcess:
        """One of our programs, to its end; in our own folder unless another one is given."""
        return subprocess.run([str(self.build / command[0]), *command[1:]], capture_output=True, text=True, env=self.env,
                              cwd=folder or self.own, stdin=subprocess.DEVNULL, timeout=60, check=False)

    def must(self, command: list[str], folder: pathlib.Path | None = None, status: int = 0) -> str:
        """The same, with the exit status that it must have; returns its stdout."""
        done = self.run(command, folder)
        if done.returncode != status:
            raise screen.Failed(f"`{' '.join(command)}` ended with {done.returncode} instead of {status}: "
                                f"{done.stderr.strip()} {done.stdout.strip()}")
        return done.stdout

    def sql(self, query: str) -> tuple[list[str], list[list[str]]]:
        """Column names and rows, as text."""
        done = subprocess.run([self.psql, "-X", "--csv", "-P", "null=null", "-v", "ON_ERROR_STOP=1", "-c", query], capture_output=True,
                              text=True, env=self.env, cwd="/", stdin=subprocess.DEVNULL, timeout=60, check=False)
        if done.returncode != 0:
            raise screen.Failed(done.stderr.strip().splitlines()[0])
        lines = list(csv.reader(io.StringIO(done.stdout)))
        return lines[0] if lines else [], lines[1:]

    def value(self, query: str) -> str:
        return self.sql(query)[1][0][0]

    def await_sql(self, condition: str, what: str, seconds: float = 20) -> None:
        """Returns once a condition holds; the database itself watches it, in one call."""
        screen.waiting(what)
        self.sql(f"""DO $$ BEGIN
            FOR i IN 1..{round(seconds * 50)} LOOP
                IF {condition} THEN RETURN; END IF;
                PERFORM pg_sleep(0.02);
            END LOOP;
            RAISE EXCEPTION '{what.replace("'", "''")}: not within {seconds} s';
        END $$""")
        screen.waited()

    @contextlib.contextmanager
    def dark(self, *names: str):
        """Inside, these custodians are frozen: they take connections and never answer, as behind a broken network."""
        self.freeze(*names)
        yield
        self.thaw(*names)

    def freeze(self, *names: str) -> None:
        for name in names:
            self.programs[f"custodian {name}"].signal(signal.SIGSTOP)

    def thaw(self, *names: str) -> None:
        for name in names:
            self.programs[f"custodian {name}"].signal(signal.SIGCONT)

    def store_of(self, url: str) -> str:
        return next(self.stores[name].name for name, known in self.urls.items() if known == url)

    def held(self, round_id: str) -> dict[str, int]:
        """How many shares of the round each custodian's own store holds."""
        counts = {}
        for name, path in self.stores.items():
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
                counts[name] = store.execute("SELECT count(*) FROM share WHERE round_id = ?", [round_id]).fetchone()[0]
        return counts
