"""Everything that is known when all is over, gathered once: the views, the custodians' stores and what reached them."""

import calendar
import collections
import re
import sqlite3
import time

from harness import wire
from harness.processes import fields

REQUEST = re.compile(r"^time=(\S+) .*\bevent=request webhook_id=(\S+) .*\bstatus=(\d+)")
DISTRIBUTED = """SELECT l.round_id, d.node_id, d.distributed_at FROM quorate_store.delivery d JOIN quorate_store.ledger l USING (round_no)"""


class Facts:
    def __init__(self, stage, load, collectors, record):
        self.stage, self.book, self.collectors, self.record = stage, load.book, collectors, record
        self.mark = load.mark
        db = stage.db
        self.deployment = db.deployment()
        self.rounds = {row["round_id"]: row for row in db.rows("SELECT * FROM quorate.rounds")}
        self.acks, self.deliveries, self.attempts = (self._by_round(view) for view in ("acks", "deliveries", "attempts"))
        self.rejections = collections.Counter(row["round_id"] for row in db.rows("SELECT round_id FROM quorate.rejections"))
        self.distributed = {(row["round_id"], row["node_id"]): row["distributed_at"].timestamp() for row in db.rows(DISTRIBUTED)}
        self.trouble = record.trouble()
        self.requests: dict[tuple, list] = collections.defaultdict(list)  # (round_id, node_id, route) -> [(wall, status)]
        self.stored: dict[tuple, list] = collections.defaultdict(list)  # the same -> [(nonce, sha256)], by the custodian's own store
        self.foreign: list[str] = []  # requests and stored envelopes that are of nothing we know
        self._read_custodians()
        self._read_nodes()

    def _by_round(self, view: str) -> dict[str, list]:
        found = collections.defaultdict(list)
        for row in self.stage.db.rows(f"SELECT * FROM quorate.{view}"):
            found[row["round_id"]].append(row)
        return found

    def digests(self, round_id: str) -> dict[int, str]:
        return {row["node_id"]: bytes(row["payload_sha256"]).hex() for row in self.deliveries.get(round_id, [])}

    def _note(self, name: str, node_id: int, route: str, key, wall: float, status: int) -> None:
        if key is None or key.node_id != node_id or key.deployment != self.deployment:
            self.foreign.append(f"custodian {name} got a request for {key}")
        else:
            self.requests[key.round_id, node_id, route].append((wall, status))

    def _read_custodians(self) -> None:
        for name, custodian in self.stage.custodians.items():
            for program in custodian.programs:
                for line in program.lines:
                    found = REQUEST.match(line)
                    if found:
                        self._note(name, custodian.node_id, custodian.route, wire.parse_webhook_id(found[2]), seconds(found[1]), int(found[3]))
            with sqlite3.connect(f"file:{custodian.store}?mode=ro", uri=True) as store:
                for deployment, round_id, node_id, nonce, payload, digest in store.execute(
                        "SELECT deployment, round_id, node_id, nonce, payload, sha256 FROM share"):
                    if deployment != self.deployment or node_id != custodian.node_id or wire.sha256(payload) != digest.hex():
                        self.foreign.append(f"custodian {name} holds {deployment}:{round_id}:{node_id}")
                    self.stored[round_id, node_id, custodian.route].append((nonce, digest.hex()))
            store.close()

    def _read_nodes(self) -> None:
        for node in self.stage.nodes.values():
            for route, request in node.all_requests():
                if not request.signature_ok:
                    self.foreign.append(f"node {node.node_id} got a request with a wrong signature: {request.key}")
                self._note(str(node.node_id), node.node_id, route, request.key, request.wall, 0)
            for (_, round_id), held in node.held.items():
                self.stored[round_id, node.node_id, "any"].append(held)

    def log_lines(self, round_id: str) -> list[tuple[float, str]]:
        """Lines of any log that name the round."""
        found = []
        for program in self.stage.processes.all:
            for line in program.lines:
                if round_id in line:
                    found.append((seconds(fields(line).get("time", "")), f"{program.name}: {line.split(' ', 1)[1]}"))
        return found

    def all_logs(self):
        """Name and text of each log."""
        for program in self.stage.processes.all:
            yield program.name, program.log
        for member in self.stage.pair.members:
            yield member.name, member.read_log()


def seconds(stamp: str) -> float:
    """Of a log's time stamp, to the millisecond; 0 for one that cannot be read."""
    found = re.fullmatch(r"(\d+-\d+-\d+T\d+:\d+:\d+)\.(\d{3})Z", stamp)
    return calendar.timegm(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S")) + int(found[2]) / 1000 if found else 0.0
