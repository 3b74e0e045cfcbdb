"""The ground that everything is measured on: one private durable PostgreSQL, nodes, coordinators; a fresh database for each measurement."""

import contextlib
import pathlib
import socket
import tempfile
import time

from harness.build import BUILD
from harness.cluster import Cluster
from harness.processes import READY_TIMEOUT_S, Process, Processes

SETTINGS = {"jit": "on", "shared_buffers": "256MB", "max_wal_size": "4GB", "synchronous_commit": "on", "max_connections": 300}


class Ground:
    """Lives as long as one measurement; `cluster` outlives it."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path):
        self.cluster, self.folder = cluster, folder
        self.programs = Processes(folder)
        self.database = cluster.create_database()
        self.conninfo = cluster.conninfo(self.database)
        self.holes: list[socket.socket] = []
        self.files: dict[str, str] = {}  # what is to stand beside the results, by name
        self.key, self.secrets = folder / "coordinator.key", folder / "node-secrets"
        self.public = self.programs.command("keygen", str(self.key)).stdout.strip()
        self.secrets.touch(mode=0o600)

    def connect(self):
        return self.cluster.connect(self.database)

    def bench_node(self, node_id: int, *options: str) -> str:
        """A node that keeps its shares in memory; its URL."""
        port_file = self.folder / f"node-{node_id}-{len(self.programs.all)}.port"  # a ground may have signing and unsigned nodes
        process = self.programs.start(f"node-{node_id}", [
            str(BUILD / "bench-node"), "--node-id", str(node_id), "--port-file", str(port_file), *options])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (port_file.exists() and port_file.read_text().strip()):
            assert process.running() and time.monotonic() < deadline, f"{process.name} wrote no port:\n{process.log}"
            time.sleep(0.005)
        return f"http://127.0.0.1:{int(port_file.read_text())}/"

    def unsigned_nodes(self, count: int = 3) -> list[str]:
        return [self.bench_node(node, "--unsigned") for node in range(1, count + 1)]

    def hole(self) -> str:
        """A dark node: a port that takes connections and never reads from them."""
        hole = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.holes.append(hole)
        return f"http://127.0.0.1:{hole.getsockname()[1]}/"

    def nodes(self, nodes: int = 3, first: int = 1, custodians: bool = False, dark: tuple[int, ...] = (), symmetric: bool = False) -> None:
        """Starts and registers them; before the coordinators, if they share secrets with these."""
        for node in range(first, first + nodes):
            file = self.folder / f"node-{node}.key"
            public = self.programs.command("keygen", *(["--symmetric"] if symmetric else []), str(file)).stdout.strip()
            if symmetric:
                with open(self.secrets, "a") as secrets:
                    secrets.write(f"{node} = {file.read_text()}")
            keys = ("--secret", str(file)) if symmetric else ("--key", str(file), "--coordinator-key", self.public)
            if node in dark:
                url = self.hole()
            elif custodians:
                url = self.programs.custodian(node, None, None, options=keys).url
            else:
                url = self.bench_node(node, *keys)
            with self.connect() as conn:
                conn.execute("SELECT quorate.add_node(%s, %s, %s)", (node, url, public))

    def coordinator(self, name: str = "c1", metrics: bool = False) -> Process:
        options = ("--node-secrets", str(self.secrets)) if self.secrets.read_text() else ()
        return self.programs.coordinator(self.conninfo, self.key, name=name, metrics=metrics, options=options)

    def quorate(self, coordinators: int = 1, metrics: bool = False, **nodes) -> list[Process]:
        self.nodes(**nodes)
        return [self.coordinator(f"c{number}", metrics) for number in range(1, coordinators + 1)]

    def wait_alone(self) -> None:
        """Until every session of this database has ended, and so has reported what it did."""
        with self.cluster.connect() as conn:
            while conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [self.database]).fetchone()[0]:
                time.sleep(0.05)

    def close(self) -> None:
        """What was measured stands by now: nothing needs to end gently."""
        for process in self.programs.all:
            if process.running():
                process.kill()
        for hole in self.holes:
            hole.close()
        self.cluster.drop_database(self.database)


@contextlib.contextmanager
def ground(cluster: Cluster):
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
        pathlib.Path(folder).chmod(0o700)
        here = Ground(cluster, pathlib.Path(folder))
        try:
            yield here
        finally:
            here.close()


def durability(cluster: Cluster) -> dict[str, str]:
    with cluster.connect() as conn:
        return {name: conn.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "synchronous_commit")}


@contextlib.contextmanager
def durable_cluster():
    with Cluster(durable=True, settings=SETTINGS) as cluster:
        cluster.create_template()
        off = [name for name, value in durability(cluster).items() if value != "on"]
        assert not off, f"{', '.join(off)}: off, so nothing measured here would count"
        yield cluster
