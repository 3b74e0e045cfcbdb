"""Fixtures: a shared cluster per worker, and a Lab per test whose logs are shown when the test fails."""

import sys

import pytest

sys.dont_write_bytecode = True

from harness.cluster import Cluster  # noqa: E402
from harness.lab import Lab  # noqa: E402
from harness.netlab import NetworkCluster, NetworkLab  # noqa: E402
from harness.standby import Pair  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as shared:
        shared.create_template()
        yield shared


@pytest.fixture
def lab(cluster, tmp_path, request):
    """A fresh database of the shared cluster."""
    with_logs = Lab(cluster, tmp_path)
    request.node.lab = with_logs
    yield with_logs
    with_logs.close()


@pytest.fixture(scope="session")
def durable_seed():
    """A stopped cluster with a migrated template, of which others begin as copies: that is six times as quick."""
    with Cluster(durable=True) as seed:
        seed.create_template()
        seed.stop()
        yield seed


@pytest.fixture
def durable_lab(durable_seed, tmp_path, request):
    """A cluster of its own, with fsync, which the test may restart and crash."""
    with Cluster(durable=True, copy_of=durable_seed) as own:
        with_logs = Lab(own, tmp_path)
        request.node.lab = with_logs
        yield with_logs
        with_logs.close()


@pytest.fixture(scope="session")
def network_cluster():
    with NetworkCluster() as shared:
        yield shared


@pytest.fixture
def network_lab(network_cluster, tmp_path, request):
    """A database, coordinators and nodes in a network of their own, whose paths the test may cut."""
    with_logs = NetworkLab(network_cluster, tmp_path)
    request.node.lab = with_logs
    yield with_logs
    with_logs.close()


@pytest.fixture
def pair_lab(durable_seed, tmp_path, request):
    """A primary and a synchronous standby of its own; coordinators get a string that names both."""
    with Pair(copy_of=durable_seed) as own:
        with_logs = Lab(own, tmp_path)
        request.node.lab = with_logs
        yield with_logs
        with_logs.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    lab = getattr(item, "lab", None)
    if report.failed and lab is not None:
        report.sections.append(("programs under test", lab.processes.logs()[-20000:]))
        report.sections.append(("PostgreSQL", lab.cluster.read_log()[-5000:]))
