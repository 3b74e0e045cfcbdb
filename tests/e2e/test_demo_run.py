"""The demo fails loudly, and leaves nothing behind however it ends. (A whole run of it is `make demo`.)"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from harness import build as programs

CITIES = programs.ROOT / "tests" / "data" / "cities.csv"


@pytest.fixture
def home():
    """A temporary folder of the demo's own, which must be empty again when it has ended."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="qd-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def start_demo(home, build=programs.BUILD):
    # A group of its own, so that a signal to it is a Ctrl-C.
    return subprocess.Popen([str(programs.ROOT / "demo" / "run"), "--build", str(build)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                            env=programs.environment(TMPDIR=str(home), PYTHONIOENCODING="utf-8"))


def assert_nothing_left(home):
    assert list(home.iterdir()) == []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(home) not in entry.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            pass


@pytest.mark.parametrize("moment, number", [
    ("starting", signal.SIGINT), (r"\$ quorate distribute a-", signal.SIGINT), (r"\$ quorate distribute b-", signal.SIGTERM)])
def test_an_interrupted_demo_stops_and_removes_everything(home, moment, number):
    demo = start_demo(home)
    seen = ""
    while not re.search(moment, seen):
        more = os.read(demo.stdout.fileno(), 65536).decode(errors="replace")
        assert more, f"the demo ended before {moment}:\n{seen}"
        seen += more
    os.killpg(demo.pid, number)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 128 + number, seen + rest
    assert "Traceback" not in rest
    assert_nothing_left(home)


def test_the_demo_fails_on_a_coordinate_that_differs_from_the_input(home, tmp_path):
    """The dealer splits another Tokyo than the kernel compares with."""
    moved = tmp_path / "moved.csv"
    moved.write_text(CITIES.read_text().replace("Tokyo,35.6762", "Tokyo,35.6763"))
    for name in ("quorate", "quorate-custodian", "demo-kernel"):
        (tmp_path / name).symlink_to(programs.program(name))
    dealer = tmp_path / "demo-dealer"
    dealer.write_text(f'#!/bin/sh\nshift\nexec "{programs.program("demo-dealer")}" "{moved}" "$@"\n')
    dealer.chmod(0o755)
    demo = start_demo(home, tmp_path)
    output, _ = demo.communicate(timeout=90)
    assert demo.returncode == 1, output
    assert "another coordinate than the input has for Tokyo" in output.splitlines()[-1]
    assert_nothing_left(home)
