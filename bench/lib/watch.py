"""Watches a coordinator while something is measured: its memory, its descriptors, what it says of itself, and the processor it uses."""

import contextlib
import os
import pathlib
import re
import threading
import urllib.request

from harness.processes import Process

PERIOD_S = 0.25


def rss(process: Process) -> int:
    """Bytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]) * 1024


def metrics(process: Process) -> dict[str, float]:
    """All its metrics, with their labels as they stand."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.metrics_port}/metrics", timeout=30) as answer:
        return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", answer.read().decode(), re.MULTILINE)}


def rounds_held(process: Process, state: str = "open") -> int:
    return int(metrics(process)[f'quorate_rounds{{state="{state}"}}'])


class Watch:
    """Remembers the highest of each while it stands."""

    def __init__(self, process: Process):
        self.process, self.rss, self.descriptors, self.lag = process, 0, 0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.rss = max(self.rss, rss(self.process))
            with contextlib.suppress(PermissionError):  # a process that keeps secrets shows them to root alone
                self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{self.process.pid}/fd")))
            self.lag = max(self.lag, metrics(self.process)["quorate_loop_lag_max_seconds"])

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        descriptors = {"descriptors": self.descriptors} if self.descriptors else {}
        return {"MiB at most": self.rss / 2**20, **descriptors, "longest loop turn ms": self.lag * 1e3}
