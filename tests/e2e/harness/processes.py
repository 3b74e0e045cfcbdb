"""Starts, watches and ends the programs under test; whatever a test started is gone when it ends."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading
import time

from . import build as programs

READY_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20


def fields(line: str) -> dict[str, str]:
    """The key=value pairs of a log line."""
    try:
        return dict(part.split("=", 1) for part in shlex.split(line) if "=" in part)
    except ValueError:
        return {}


class Process:
    """One program; its stderr is read line by line as it comes, so that a test can await a line."""

    def __init__(self, name: str, command: list[str], environment: dict | None = None):
        self.name, self.command = name, command
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._may_fail = False
        self._told_to_stop = False
        self._frozen = False
        self.may_be_killed = False  # by itself, where a test told it to
        self.killed_by = -signal.SIGKILL
        # --pdeathsig: it ends with us, should we be killed.
        self.popen = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=programs.environment(**(environment or {})),
                                      cwd="/")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for raw in self.popen.stdout:
            with self._news:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def running(self) -> bool:
        return self.popen.poll() is None

    def wait_line(self, pattern: str, timeout: float = READY_TIMEOUT_S, since: int = 0) -> str:
        """The first line from number `since` on that matches; fails when the program ends before it."""
        wanted, deadline, seen = re.compile(pattern), time.monotonic() + timeout, since
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if wanted.search(line):
                        return line
                seen = max(seen, len(self.lines))
                left = deadline - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"{self.name} never logged /{pattern}/ "
                                         f"({'running' if self.running() else f'ended: {self.popen.poll()}'}):\n{self.log}")
                self._news.wait(min(left, 0.5))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal; after SIGKILL it is waited for, so that it is surely gone."""
        self._told_to_stop = self._told_to_stop or number in (signal.SIGTERM, signal.SIGINT)
        self._frozen = number == signal.SIGSTOP or self._frozen and number != signal.SIGCONT
        self.popen.send_signal(number)
        if number == signal.SIGKILL:
            self._may_fail = True
            self.popen.wait(STOP_TIMEOUT_S)

    def tell_to_stop(self) -> None:
        """SIGTERM, once: a second one would cut the drain short. Thaws it, too, but only if it is frozen: SIGCONT takes back every
        SIGSTOP that is on its way, such as the one with which a leak check at exit stops the program's threads, which then never stop."""
        if self.running() and not self._told_to_stop:
            self._told_to_stop = True
            self.popen.send_signal(signal.SIGTERM)
            if self._frozen:
                self.popen.send_signal(signal.SIGCONT)

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Tells it to stop, then waits; a program that does not end is killed and that is an error."""
        self.tell_to_stop()
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            where = self._where()
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"{self.name} did not end within {timeout} s of SIGTERM ({where}):\n{self.log}") from None
        self._reader.join(5)
        return self.popen.returncode

    def _where(self) -> str:
        """What its threads wait for, as the kernel says it."""
        found = []
        for task in pathlib.Path(f"/proc/{self.pid}/task").glob("*"):
            try:
                state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                found.append(f"thread {task.name}: {state}, {(task / 'wchan').read_text()}, syscall {(task / 'syscall').read_text().strip()}")
            except OSError:  # it has just ended
                continue
        return "; ".join(found) or "no thread is left"

    def check_end(self) -> None:
        """Ends it when it still runs; it must have ended well, unless the test killed it."""
        status = self.stop()
        reports = [mark for mark in programs.SANITIZER_MARKS if mark in self.log]
        assert not reports, f"{self.name}: sanitizer report:\n{self.log}"
        assert self._may_fail or status == 0 or self.may_be_killed and status == self.killed_by, f"{self.name} ended with {status}:\n{self.log}"

    def cpu_seconds(self) -> float:
        stat = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


class Processes:
    """All programs of one test."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.all: list[Process] = []

    def start(self, name: str, command: list[str], environment: dict | None = None) -> Process:
        process = Process(name, command, environment)
        self.all.append(process)
        return process

    def coordinator(self, conninfo: str, key_file: pathlib.Path | None, name: str = "c1", metrics: bool = False,
                    ready: bool = True, options: tuple[str, ...] = (), crash_at: str | None = None,
                    under: tuple[str, ...] = ()) -> Process:
        """`quorate run`; returns when it reads work (unless ready=False), with `metrics_port` when asked for. crash_at: of the build that can
        be told where to end. key_file: None when `options` say --key. under: the command that runs it, such as env with variables."""
        program = programs.program("quorate", programs.CRASH_BUILD if crash_at else programs.BUILD)
        key = ["--key", str(key_file)] if key_file else []
        command = [*under, program, "run", "--db", conninfo, *key, "--name", name, *options]
        if metrics:
            command += ["--metrics", "127.0.0.1:0"]
        process = self.start(name, command, {"QUORATE_CRASH_AT": crash_at} if crash_at else None)
        process.may_be_killed = crash_at is not None
        if metrics:
            process.metrics_port = int(fields(process.wait_line(r"\bevent=metrics\b"))["port"])
        if ready:
            process.wait_line(r"\bevent=ready\b")
        return process

    def custodian(self, node_id: int, key_file: pathlib.Path | None, coordinator_key: str | None, store: pathlib.Path | None = None,
                  options: tuple[str, ...] = (), under: tuple[str, ...] = (), listen: str = "127.0.0.1:0") -> Process:
        """`quorate-custodian`; returns when it listens, with `url`. key_file: None when `options` say --secret. under: as above."""
        keys = ["--key", str(key_file), "--coordinator-key", coordinator_key] if key_file else []
        port_file = self.folder / f"custodian-{node_id}-{len(self.all)}.port"
        process = self.start(f"custodian-{node_id}", [
            *under, programs.program("quorate-custodian"), "--node-id", str(node_id), "--listen", listen,
            "--port-file", str(port_file), "--store", str(store or self.folder / f"custodian-{node_id}.db"),
            *keys, *options])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (port_file.exists() and port_file.read_text().strip()):
            assert process.running() and time.monotonic() < deadline, f"{process.name} wrote no port:\n{process.log}"
            time.sleep(0.01)
        process.url = f"{'https' if '--tls-cert' in options else 'http'}://127.0.0.1:{int(port_file.read_text())}/"
        return process

    def command(self, *arguments: str, conninfo: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess:
        """Runs one `quorate` command to its end; stdout and stderr as text."""
        more = ["--db", conninfo] if conninfo else []
        done = subprocess.run([programs.program("quorate"), *arguments, *more], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, env=programs.environment(), timeout=timeout, cwd="/", check=False)
        assert not any(mark in done.stderr for mark in programs.SANITIZER_MARKS), done.stderr
        return done

    def logs(self) -> str:
        return "\n".join(f"--- {p.name} (pid {p.pid}, {'running' if p.running() else p.popen.returncode})\n{p.log}"
                         for p in self.all)

    def close(self) -> None:
        """Ends all, then reports the first that did not end well."""
        problems = []
        for process in self.all:
            process.tell_to_stop()
        for process in self.all:
            try:
                process.check_end()
            except AssertionError as problem:
                problems.append(str(problem))
        assert not problems, "\n".join(problems)
