"""A bash that is fed block by block, as a reader would type them, and everything that it started ends with it."""

import os
import pathlib
import queue
import secrets
import signal
import subprocess
import threading
import time

# A failing command ends the shell, which the test notices; what still runs in the background goes with it.
STRICT = "set -eu -o pipefail; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"


class Shell:
    """`env`: the whole environment. A line that starts another shell (such as pg_virtualenv's) is followed into it."""

    def __init__(self, folder: pathlib.Path, env: dict):
        self.stderr = folder / "stderr"
        self.transcript: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        with open(self.stderr, "wb") as errors:
            self.process = subprocess.Popen(["bash", "--noprofile", "--norc", "-s"], stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=env, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, block: str, timeout: float = 90) -> str:
        """Runs the block to its end; what it wrote to stdout."""
        mark = secrets.token_hex(8)
        self._send(f"{block}\n{STRICT}printf '%s\\n' {mark}\n")
        return self._read_until(mark, block, timeout)

    def end(self, block: str, timeout: float = 60) -> None:
        """Runs a block that leaves the shell; everything must have gone well, and nothing may be left behind."""
        self._send(f"trap - EXIT\n{block}\n")
        self.process.stdin.close()
        status = self.process.wait(timeout)
        left = self._kill_group(signal.SIGKILL)
        self._read_until(None, block, timeout)
        assert status == 0, self._failure(f"the shell ended with {status}", block)
        assert not left, self._failure("programs were left behind by", block)

    def _send(self, text: str) -> None:
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def _read_until(self, mark: str | None, block: str, timeout: float) -> str:
        output, deadline = "", time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(self._failure(f"no end within {timeout} s", block + "\n" + output)) from None
            if line is None and mark is not None:
                raise AssertionError(self._failure(f"a command failed with {self.process.wait()}", block + "\n" + output))
            if line is None or mark is not None and line.strip() == mark:
                self.transcript.append(f"{block}\n{output}")
                return output
            output += line

    def _failure(self, what: str, block: str) -> str:
        return f"{what}:\n{block}\n--- stderr:\n{self.stderr.read_text(errors='replace')[-4000:]}"

    def _kill_group(self, number: int) -> bool:
        """False when nothing was left of the shell and what it started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """For a test that failed on the way: the end of its input ends the shell, and a signal one that does not hear it."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self._kill_group(signal.SIGTERM)
                self.process.wait(20)
