"""The programs of the demo: shares that are too few or not those that were dealt give nothing."""

import itertools
import sqlite3
import subprocess

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
