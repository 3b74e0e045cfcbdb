"""What machine this is, and what its host took of its time while something was measured."""

import os
import pathlib
import platform
import subprocess


class Stolen:
    """Figures taken beside a busy neighbour mean little: this says how busy it was."""

    def __init__(self) -> None:
        self.began = self._read()

    @staticmethod
    def _read() -> list[int]:
        return [int(ticks) for ticks in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    def share(self) -> float:
        spent = [now - then for now, then in zip(self._read(), self.began)]
        return spent[7] / max(1, sum(spent))


def describe() -> dict:
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 1024
    version = subprocess.run(["/usr/lib/postgresql/15/bin/postgres", "--version"], capture_output=True, text=True, check=True)
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_mib": memory, "kernel": platform.release(),
            "postgresql": version.stdout.strip(), "load_before": round(os.getloadavg()[0], 2)}
