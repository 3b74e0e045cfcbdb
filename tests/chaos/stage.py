"""Everything that takes part: the pair of servers, relays, coordinators, real custodians and nodes that misbehave."""

import json
import pathlib
import queue
import random
import subprocess
import sys
import threading

import psycopg
from harness import behaviours as b
from harness import wire
from harness.nodes import Node
from harness.processes import Process, Processes
from harness.rounds import Database
from pair import Pair
from schedule import BEHIND_RELAY, COORDINATORS, ODD, REAL

WITNESSES = 4
SEEN = "SELECT count(*) FROM quorate.attempts WHERE round_id = %s AND node_id = %s AND route = %s"


class Relays:
    """The process of relay.py."""

    def __init__(self):
        self.popen = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", sys.executable, pathlib.Path(__file__).with_name("relay.py")],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()

    def set(self, name: str, **order) -> int:
        """Makes or changes a relay; its port."""
        with self._lock:
            self.popen.stdin.write(json.dumps({"name": name, **order}) + "\n")
            self.popen.stdin.flush()
            return json.loads(self.popen.stdout.readline())["port"]

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()


class Custodian:
    """A real custodian behind a relay, so that its URL stays the same; `name`: 3, or 3-backup."""

    def __init__(self, stage: "Stage", name: str, key_file: pathlib.Path):
        self.stage, self.name, self.key_file = stage, name, key_file
        self.node_id, self.route = int(name.split("-")[0]), "backup" if "-" in name else "primary"
        self.store = stage.folder / f"custodian-{name}.db"
        self.programs: list[Process] = []
        self.start()
        self.url = f"http://127.0.0.1:{stage.relays.set(self.relay, mode='pass')}/"

    @property
    def relay(self) -> str:
        return f"custodian {self.name}"

    @property
    def program(self) -> Process:
        return self.programs[-1]

    def start(self) -> None:
        program = self.stage.processes.custodian(self.node_id, self.key_file, self.stage.key.public_text, self.store,
                                                 ("--log-level", "debug"))
        program.name = f"custodian-{self.name}"
        self.programs.append(program)
        host, port = program.url.removeprefix("http://").strip("/").split(":")
        self.stage.relays.set(self.relay, target=["tcp", host, int(port)])


class Stage:
    def __init__(self, folder: pathlib.Path, seed: int):
        self.folder, self.seed = folder, seed
        self.processes = Processes(folder)
        self.key = wire.KeyPair()
        self.secrets = [self.key]
        self.coordinators: dict[str, Process] = {}
        self.custodians: dict[str, Custodian] = {}
        self.nodes: dict[str, Node] = {}
        self.unattested: list[tuple] = []  # requests that came before their attempt was committed
        self.attested = 0
        self._witnesses: queue.Queue = queue.Queue()
        self.relays = Relays()
        self.pair = None
        try:
            self.pair = Pair(self._server_changed)
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        self.db = Database(self.pair, "quorate_template")
        self.key_file = self._write_key("coordinator.key", self.key)
        with self.db.connect() as conn:
            conn.execute("CREATE SCHEMA canary CREATE TABLE beat (at timestamptz)")
            conn.execute("INSERT INTO canary.beat VALUES (clock_timestamp())")
        for name in BEHIND_RELAY:
            for member in self.pair.members:
                self.relays.set(f"{name} {member.name}", target=["unix", member.socket], mode="pass")
        for _ in range(WITNESSES):
            self._witnesses.put(None)
        self._set_up_nodes()
        for name in COORDINATORS:
            self.start_coordinator(name)

    def _write_key(self, name: str, key: wire.KeyPair) -> pathlib.Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(key.secret_text + "\n")
        return path

    def _set_up_nodes(self) -> None:
        for name in REAL:
            if "-" not in name:
                key = wire.KeyPair()
                self.secrets.append(key)
                key_file = self._write_key(f"node-{name}.key", key)
                for each in (name, f"{name}-backup"):
                    if each in REAL:
                        self.custodians[each] = Custodian(self, each, key_file)
                backup = self.custodians.get(f"{name}-backup")
                self.db.rows("SELECT quorate.add_node(%s, %s, %s, %s)", int(name), self.custodians[name].url, key.public_text,
                             backup.url if backup else None)
        for name in ODD:
            node = Node(int(name), self.key.public_text, backup=name == ODD[0])
            node.witness = self._witness
            self.secrets.append(node.key)
            for endpoint in filter(None, (node.primary, node.backup)):
                endpoint.default = mood("fair", random.Random(f"{self.seed} node {name}"))
            self.nodes[name] = node
            self.db.add_node(node)

    def start_coordinator(self, name: str, ready: bool = True) -> None:
        conninfo = self.pair.conninfo()
        if name in BEHIND_RELAY:
            conninfo = self.pair.conninfo_at([("127.0.0.1", self.relays.set(f"{name} {m.name}")) for m in self.pair.members])
        self.coordinators[name] = self.processes.coordinator(conninfo, self.key_file, name, ready=ready, options=("--log-level", "debug"))

    def _server_changed(self, member, up: bool) -> None:
        for name in BEHIND_RELAY:
            self.relays.set(f"{name} {member.name}", up=up)

    def _witness(self, endpoint, request) -> None:
        """I5 at the very moment: whoever is reached by a request can see its attempt. Silent while the database does not answer."""
        if request.key is None:
            return
        route = "primary" if endpoint is endpoint.node.primary else "backup"
        conn = self._witnesses.get()
        try:
            if conn is None:
                conn = psycopg.connect(self.pair.conninfo(), autocommit=True, application_name="witness")
                conn.execute("SET statement_timeout = '2s'")
            (seen,) = conn.execute(SEEN, (request.key.round_id, request.key.node_id, route)).fetchone()
            self.attested += 1
            if seen == 0:
                self.unattested.append((request.key.round_id, request.key.node_id, route, request.wall))
        except psycopg.Error:
            if conn is not None:
                conn.close()
            conn = None
        finally:
            self._witnesses.put(conn)

    def close_nodes(self) -> None:
        for node in self.nodes.values():
            node.close()

    def close(self) -> None:
        """Whatever is left; all that can be said about how programs ended has been said before."""
        self.close_nodes()
        for process in self.processes.all:
            process.popen.kill()
            process.popen.wait()
        while not self._witnesses.empty():
            conn = self._witnesses.get()
            if conn is not None:
                conn.close()
        self.relays.close()
        if self.pair is not None:
            self.pair.close()


def mood(kind: str, dice: random.Random) -> b.Behaviour:
    """A node that mostly does its duty (fair), or hardly ever (foul)."""
    good = [(b.ok(), 20), (b.ok(204), 4), (b.slow(0.05), 6), (b.slow(0.6), 2)]
    bad = [(b.status(503, ("retry-after", "1")), 2), (b.status(500), 2), (b.store_then_lose_answer(), 2), (b.hang_up(), 2), (b.no_receipt(), 1),
           (b.forged_receipt(nonce=1), 1), (b.forged_receipt(body=b"other"), 1), (b.forged_receipt(key=wire.KeyPair()), 1),
           (b.receipt_text("v1a,AAAA"), 1), (b.receipt_text("{valid}", "{valid}"), 1), (b.half_answer(), 2), (b.half_body(), 1),
           (b.informational_first(), 1), (b.redirect_to_itself(), 1), (b.status(409), 1), (b.garbage(), 1), (b.slow(2.5), 1)]
    foul = [(b.silent(), 3), (b.slow(3.0), 3), (b.endless_body(with_receipt=False), 1), (b.informational_for_ever(), 1)]
    choices = good + bad if kind == "fair" else good[:1] + bad * 3 + foul * 2
    behaviours, weights = zip(*choices)
    lock = threading.Lock()

    def run(exchange) -> None:
        with lock:
            (chosen,) = dice.choices(behaviours, weights)
        exchange.request.behaviour = chosen.__name__
        chosen(exchange)

    return b.named(kind, run)
