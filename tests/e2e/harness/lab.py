"""Everything one test needs, in one place: a database, custodians, coordinators; and the order in which it all ends."""

import datetime
import itertools
import pathlib

from . import wire
from .cluster import Cluster
from .invariants import check_invariants, check_logs
from .nodes import Node
from .processes import Process, Processes
from .rounds import Database


class Lab:
    def __init__(self, cluster: Cluster, folder: pathlib.Path, database: str | None = None):
        self.cluster, self.folder = cluster, folder
        self.db = Database(cluster, database or cluster.create_database())
        self.processes = Processes(folder)
        self.nodes: list[Node] = []
        self.key = wire.KeyPair()
        self.written_keys: list[wire.KeyPair] = []
        self.key_file = self.write_key("coordinator.key", self.key)
        self.punctual: bool | datetime.datetime = True  # a test that leaves the rounds alone for a while says False, or until when
        self._names = (f"c{number}" for number in itertools.count(1))

    def write_key(self, name: str, key: wire.KeyPair | wire.Secret) -> pathlib.Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(key.secret_text + "\n")
        self.written_keys.append(key)
        return path

    def write_node_secrets(self, secrets: dict[int, list[wire.Secret]], name: str = "node-secrets") -> pathlib.Path:
        """The file of --node-secrets."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text("# node = secret\n" + "".join(
            f"{node_id} = {secret.secret_text}\n" for node_id, several in secrets.items() for secret in several))
        self.written_keys.extend(secret for several in secrets.values() for secret in several)
        return path

    def node(self, node_id: int | None = None, **options) -> Node:
        """A Python custodian, known to the database; options as of nodes.Node."""
        node = Node(node_id or len(self.nodes) + 1, self.key.public_text, **options)
        self.nodes.append(node)
        self.db.add_node(node)
        return node

    def some_nodes(self, count: int, **options) -> list[Node]:
        return [self.node(**options) for _ in range(count)]

    def coordinator(self, name: str | None = None, **options) -> Process:
        if any(node.secrets for node in self.nodes) and "--node-secrets" not in options.get("options", ()):
            path = self.write_node_secrets({node.node_id: node.secrets for node in self.nodes})
            options["options"] = (*options.get("options", ()), "--node-secrets", str(path))
        return self.processes.coordinator(self.db.conninfo, self.key_file, name or next(self._names), **options)

    def successor(self) -> Process:
        """A coordinator after the death of all others: nobody could keep a deadline until it was there."""
        started = self.coordinator()
        self.punctual = self.db.one("SELECT clock_timestamp()")
        return started

    def check(self) -> None:
        check_invariants(self.db, self.nodes, self.punctual)

    def close(self) -> None:
        """Nodes go first, so that no coordinator waits for one; then everything that ended is looked at."""
        for node in self.nodes:
            node.close()
        try:
            self.processes.close()
            self.check()
            check_logs(self.db, self.processes.logs(), [*self.written_keys, *(node.key for node in self.nodes), *(secret for node in self.nodes for secret in node.secrets)])
        finally:
            self.cluster.drop_database(self.db.name)
