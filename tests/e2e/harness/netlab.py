"""A Lab whose database, coordinators and custodians are hosts of a network of their own; the test itself uses PostgreSQL's Unix socket."""

import pathlib

from .cluster import Cluster
from .lab import Lab
from .netns import SUBNET, Network
from .nodes import Endpoint, Node
from .processes import Process


class NetworkCluster:
    """A network with the party db, and in it a cluster with a template; both may serve many labs, one after the other."""

    def __init__(self):
        self.network = Network("db")
        self.cluster = None
        try:
            with self.network["db"].entered():
                self.cluster = Cluster(settings={"listen_addresses": self.network["db"].address})
            with open(self.cluster.data / "pg_hba.conf", "a", encoding="utf-8") as rules:
                rules.write(f"host all all {SUBNET} trust\n")
            with self.cluster.connect() as conn:
                conn.execute("SELECT pg_reload_conf()")
            self.cluster.create_template()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        try:
            if self.cluster is not None:
                self.cluster.close()
        finally:
            self.network.close()

    def __enter__(self) -> "NetworkCluster":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class NetworkLab(Lab):
    """Parties besides db: c1, c2 ... as coordinators are started; n1, n2 ... and b1, b2 ... (backups) as nodes are added."""

    def __init__(self, shared: NetworkCluster, folder: pathlib.Path):
        super().__init__(shared.cluster, folder)
        self.network = shared.network

    def conninfo(self, more: str = "") -> str:
        """How a party reaches the database."""
        return f"host={self.network['db'].address} port={self.cluster.port} user=postgres dbname={self.db.name} {more}"

    def coordinator(self, name: str | None = None, conninfo: str | None = None, **options) -> Process:
        name = name or next(self._names)
        party = self.network.parties.get(name) or self.network.add(name)
        options["options"] = (*options.get("options", ()), "--allow-plain-http")  # nodes are on other hosts
        with party.entered():
            return self.processes.coordinator(conninfo or self.conninfo(), self.key_file, name, **options)

    def node(self, node_id: int | None = None, backup: bool = False, **options) -> Node:
        node_id = node_id or len(self.nodes) + 1
        party = self.network.add(f"n{node_id}")
        with party.entered():
            node = Node(node_id, self.key.public_text, host=party.address, **options)
        self.nodes.append(node)
        if backup:
            party = self.network.add(f"b{node_id}")
            with party.entered():
                node.backup = Endpoint(node, host=party.address)
        self.db.add_node(node)
        return node

    def names(self, nodes: list[Node]) -> list[str]:
        return [f"n{node.node_id}" for node in nodes]

    def requests_of(self, node: Node, coordinator: str) -> list:
        """The requests that one coordinator sent to the node."""
        return [r for _, r in node.all_requests() if r.peer == self.network[coordinator].address]

    def close(self) -> None:
        self.network.heal()
        try:
            super().close()
        finally:
            for name in [name for name in self.network.parties if name != "db"]:
                self.network.remove(name)
