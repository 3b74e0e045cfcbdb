"""The demo fails loudly, and leaves nothing behind however it ends. (A whole run of it is `make demo`.)"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile

import pytest

from harness import build as programs

CITIES = programs.ROOT / "tests" / "data" / "cities.csv"


def run(name, *arguments):
    return subprocess.run([programs.program(name), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env=programs.environment(), timeout=30, check=False)


@pytest.fixture
def stores(tmp_path):
    """Stores as a custodian's, each with one share of Paris, split 3-of-5."""
    dealt = run("demo-dealer", CITIES, 3, "1,2,3,4,200", tmp_path)
    assert dealt.returncode == 0, dealt.stderr
    made = {}
    for node in (1, 2, 3, 4, 200):
        made[node] = tmp_path / f"{node}.db"
        with sqlite3.connect(made[node]) as store:
            store.execute("CREATE TABLE share (deployment TEXT, round_id TEXT, node_id INTEGER, payload BLOB)")
            store.execute("INSERT INTO share VALUES ('d', 'r', ?, ?)", [node, (tmp_path / f"Paris.{node}").read_bytes()])
        store.close()
    return made


def kernel(stores, nodes, city="Paris"):
    return run("demo-kernel", CITIES, city, 3, "d", "r", *(f"{node}={stores[node]}" for node in nodes))


def alter(store, change):
    with sqlite3.connect(store) as opened:
        payload, = opened.execute("SELECT payload FROM share").fetchone()
        opened.execute("UPDATE share SET payload = ?", [change(payload)])
    opened.close()


def test_any_three_of_five_shares_give_the_coordinate_back(stores):
    for nodes in [*itertools.combinations(stores, 3), tuple(stores)]:
        done = kernel(stores, nodes)
        assert (done.returncode, done.stdout, done.stderr) == (0, "48.8566,2.3522\n", "")


@pytest.mark.parametrize("nodes", [(), (1, 200)])
def test_fewer_shares_give_nothing(stores, nodes):
    done = kernel(stores, nodes)
    assert (done.returncode, done.stdout) == (1, "")
    assert "3 are needed" in done.stderr


def test_the_kernel_tells_any_difference_from_the_input(stores):
    other = kernel(stores, (1, 2, 3), city="Oslo")
    assert (other.returncode, other.stdout) == (1, "") and "another coordinate" in other.stderr
    alter(stores[2], lambda payload: payload[:-1] + bytes([payload[-1] ^ 1]))
    changed = kernel(stores, (1, 2, 3))
    assert (changed.returncode, changed.stdout) == (1, "") and "another coordinate" in changed.stderr
    assert kernel(stores, (1, 3, 4)).returncode == 0


def test_one_share_does_not_pass_for_two(stores):
    first = sqlite3.connect(stores[1]).execute("SELECT payload FROM share").fetchone()[0]
    alter(stores[2], lambda _: first)
    done = kernel(stores, (1, 2, 3))
    assert (done.returncode, done.stdout) == (1, "") and "the same share" in done.stderr


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
