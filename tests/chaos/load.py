"""Dealers: thousands of rounds of all shapes, submitted in every way, with the mistakes that dealers make."""

import collections
import random
import secrets
import threading
import time

from book import Book, Client, Entry
from harness import wire
from schedule import ODD, REAL

NODES = sorted({int(name.split("-")[0]) for name in REAL} | {int(name) for name in ODD})
DEALERS = 12  # most of them think or wait
CATCH_UP_S = 3.0
CASTS = {"retry_budget": "int", "after_quorum": "text", "nonce": "bigint"}


class Load:
    """`on_round(entry, deadline_s)` hears of every round that may exist."""

    def __init__(self, conninfo: str, seed: int, rate: float, on_round):
        self.conninfo, self.seed, self.rate, self.on_round = conninfo, seed, rate, on_round
        self.book = Book()
        self.stopping = threading.Event()
        # Every envelope carries this, so that one look finds any of them wherever it should not be.
        self.mark = secrets.token_bytes(15)
        self.recent: collections.deque = collections.deque(maxlen=300)
        self._threads = [threading.Thread(target=self._deal, args=(number,), daemon=True) for number in range(DEALERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a dealer hangs"

    def _deal(self, number: int) -> None:
        dice = random.Random(f"{self.seed} dealer {number}")
        client = Client(self.conninfo, f"dealer {number}")
        ways = [(self.submit, 5, 1), (self.open_and_distribute, 4, 1), (self.submit_many, 1, 8), (self.misuse, 1, 1)]
        actions, weights, rounds = zip(*ways)
        due = time.monotonic()
        while not self.stopping.is_set():
            (which,) = dice.choices(range(len(actions)), weights)
            actions[which](client, dice)
            # What an outage held up is made up for, within limits: so it ends with a flood.
            due = max(due + dice.expovariate(self.rate / DEALERS / rounds[which]), time.monotonic() - CATCH_UP_S)
            self.stopping.wait(max(0.0, due - time.monotonic()))
        client.close()

    # Shapes.

    def _envelope(self, dice: random.Random) -> bytes:
        size = dice.choice([1, 40, 200, 200, 700, 20_000])
        return self.mark + secrets.token_bytes(size) + self.mark

    def _policy(self, dice: random.Random) -> dict:
        deadline = dice.uniform(1.5, 6)
        freshness = dice.uniform(2, 6) if dice.random() < 0.3 else None
        budget = dice.choice([1, 2, 3, 3, 4, 6])
        most = min(dice.uniform(0.05, 1.0), 0.9 * min(deadline, freshness or deadline) / budget)
        policy = {"per_share_timeout": dice.choice([0.3, 0.6, 1.0, 1.0, 2.0]), "retry_budget": budget, "base_backoff": min(0.05, most),
                  "max_backoff": most, "round_deadline": deadline, "after_quorum": dice.choice(["continue", "continue", "stop"])}
        return policy if freshness is None else {**policy, "freshness": freshness}

    @staticmethod
    def _named(policy: dict) -> tuple[str, list]:
        text = "".join(f", {name} => %s::{CASTS.get(name, 'interval')}" for name in policy)
        return text, [value if name in CASTS else f"{value:.6f} s" for name, value in policy.items()]

    def _draw(self, dice: random.Random) -> tuple[Entry, list[int]]:
        nodes = dice.sample(NODES, dice.randint(1, len(NODES)))
        quorum = dice.choice([len(nodes), dice.randint(1, len(nodes)), max(1, len(nodes) * 2 // 3)])
        entry = Entry(f"r-{secrets.token_hex(6)}", quorum, self._policy(dice))
        if dice.random() < 0.2:
            entry.nonce = secrets.randbits(63) or 1
        return self.book.add(entry), nodes

    def _exists(self, entry: Entry) -> None:
        self.recent.append(entry)
        self.on_round(entry, entry.policy["round_deadline"])

    # Ways.

    def submit(self, client: Client, dice: random.Random) -> None:
        entry, nodes = self._draw(dice)
        payloads = [self._envelope(dice) for _ in nodes]
        text, values = self._named({**entry.policy, **({"nonce": entry.nonce} if entry.nonce else {})})
        sql = f"SELECT nonce FROM quorate.submit_round(%s, %s, %s::int[], %s::bytea[]{text})"
        self._open(client, [entry], sql, [entry.round_id, entry.quorum, nodes, payloads, *values])
        self._distributed(entry, nodes, payloads)
        self._exists(entry)
        self._afterthoughts(client, dice, entry, dict(zip(nodes, payloads)))

    def submit_many(self, client: Client, dice: random.Random) -> None:
        first, nodes = self._draw(dice)
        first.nonce = None
        entries = [first] + [self.book.add(Entry(f"r-{secrets.token_hex(6)}", first.quorum, first.policy)) for _ in range(dice.randint(1, 14))]
        payloads = [self._envelope(dice) for _ in range(len(nodes) * len(entries))]
        text, values = self._named(first.policy)
        sql = f"SELECT nonce FROM quorate.submit_rounds(%s, %s, %s::int[], %s::bytea[]{text})"
        self._open(client, entries, sql, [[e.round_id for e in entries], first.quorum, nodes, payloads, *values])
        for number, entry in enumerate(entries):
            self._distributed(entry, nodes, payloads[number * len(nodes):(number + 1) * len(nodes)])
            self._exists(entry)

    def open_and_distribute(self, client: Client, dice: random.Random) -> None:
        entry, nodes = self._draw(dice)
        text, values = self._named({**entry.policy, **({"nonce": entry.nonce} if entry.nonce else {})})
        sql = f"SELECT nonce FROM quorate.open_round(%s, %s, %s::int[]{text})"
        self._open(client, [entry], sql, [entry.round_id, entry.quorum, nodes, *values])
        self._exists(entry)
        if entry.known != "committed":
            return
        payloads = {node: self._envelope(dice) for node in nodes}
        parts = [nodes] if dice.random() < 0.6 else [nodes[:1], nodes[1:]]
        for part in filter(None, parts):
            self.distribute(client, entry, {node: payloads[node] for node in part})
            if len(parts) > 1:
                self.stopping.wait(dice.choice([0, 0.2, entry.policy["round_deadline"] * 0.6]))
        self._afterthoughts(client, dice, entry, payloads)

    def _open(self, client: Client, entries: list[Entry], sql: str, values: list) -> None:
        """Asks until it is known whether the rounds exist: a lost answer is followed by the same call again, which cannot open them twice."""
        doubt = False
        while True:
            reply = client.insist(self.stopping, sql, *values)
            if reply.status == "done":
                for entry, (nonce,) in zip(entries, reply.rows):
                    entry.known, entry.nonce = "committed", nonce
                return
            if reply.status == "refused":
                if reply.sqlstate == "QR006" and doubt:
                    self._look_up(client, entries)
                else:
                    self.book.breach("client", entries[0].round_id, f"a good submission was refused: {reply.sqlstate} {reply.detail}")
                return
            if reply.status == "not_done" and not doubt:
                for entry in entries:
                    entry.known = "refused"
            if self.stopping.is_set():
                return
            if reply.status == "unknown":
                doubt = True
                self.book.count("answers lost")
                self.stopping.wait(0.1)

    def _look_up(self, client: Client, entries: list[Entry]) -> None:
        for entry in entries:
            reply = client.insist(self.stopping, "SELECT nonce FROM quorate.rounds WHERE round_id = %s", entry.round_id)
            if reply.rows:
                entry.known, entry.nonce = "committed", reply.rows[0][0]

    @staticmethod
    def _distributed(entry: Entry, nodes: list[int], payloads: list[bytes]) -> None:
        for node, payload in zip(nodes, payloads):
            if entry.known == "committed":
                entry.accepted[node] = wire.sha256(payload)
            else:
                entry.maybe.setdefault(node, set()).add(wire.sha256(payload))

    def distribute(self, client: Client, entry: Entry, payloads: dict[int, bytes], nonce: int | None = None) -> dict[int, str]:
        """The verdicts heard; each must be the one that the rules say."""
        reply = client.insist(self.stopping, "SELECT node_id, verdict FROM quorate.distribute(%s, %s, %s::int[], %s::bytea[])", entry.round_id,
                              nonce or entry.nonce, list(payloads), list(payloads.values()))
        if reply.status != "done":
            for node, payload in payloads.items() if reply.status == "unknown" and nonce is None else ():
                entry.maybe.setdefault(node, set()).add(wire.sha256(payload))
            return {}
        verdicts = dict(reply.rows)
        for node, payload in payloads.items():
            digest, verdict = wire.sha256(payload), verdicts[node]
            known, maybe = entry.accepted.get(node), entry.maybe.get(node, set())
            allowed = {"stale_nonce"} if nonce is not None else {"duplicate" if known == digest else "conflict"} if known else \
                {"accepted", "round_closed"} | ({"duplicate"} if digest in maybe else set()) | ({"conflict"} if maybe - {digest} else set())
            if verdict not in allowed:
                self.book.breach("verdicts", entry.round_id, f"node {node} got the verdict {verdict}, expected {allowed}")
            if verdict in ("accepted", "duplicate"):
                entry.accepted[node] = digest
            else:
                entry.refusals += 1
            self.book.count(f"verdict {verdict}")
        return verdicts

    def _afterthoughts(self, client: Client, dice: random.Random, entry: Entry, payloads: dict[int, bytes]) -> None:
        if entry.known != "committed":
            return
        what = dice.choice(["duplicate", "conflict", "stale", "cancel"] + ["nothing"] * 8)
        if what == "duplicate":
            self.distribute(client, entry, payloads)
        elif what == "conflict":
            node = dice.choice(list(payloads))
            self.distribute(client, entry, {node: self._envelope(dice)})
        elif what == "stale":
            self.distribute(client, entry, payloads, nonce=entry.nonce + 1 if entry.nonce < 1 << 62 else entry.nonce - 1)
        elif what == "cancel":
            self.stopping.wait(dice.choice([0, 0, 0.1, entry.policy["round_deadline"] * 0.9]))
            reply = client.call("SELECT quorate.cancel_round(%s, 'chaos')", entry.round_id)
            if reply.status == "done":
                entry.cancelled = reply.rows[0][0]

    def misuse(self, client: Client, dice: random.Random) -> None:
        """I4: a round id or a nonce once more."""
        old = [entry for entry in list(self.recent) if entry.known == "committed"]
        if not old:
            return
        entry, fresh = dice.choice(old), f"r-{secrets.token_hex(6)}"
        for round_id, nonce, wanted in ((entry.round_id, None, "QR006"), (fresh, entry.nonce, "QR005")):
            reply = client.insist(self.stopping, "SELECT nonce FROM quorate.open_round(%s, 1, %s::int[], nonce => %s)", round_id, [1], nonce)
            if reply.status == "done":
                self.book.breach("I4", entry.round_id, f"its {'round id' if nonce is None else 'nonce'} was accepted again, for {round_id}")
            elif reply.status == "refused" and reply.sqlstate != wanted:
                self.book.breach("I4", entry.round_id, f"its reuse was refused with {reply.sqlstate}, not {wanted}")
            elif reply.status == "refused":
                self.book.count("reuses refused")

    def dawdle(self, conn, fault, window, commit: bool) -> None:
        """A round in a transaction that stays open for a while."""
        dice = random.Random(str(fault))
        entry, nodes = self._draw(dice)
        entry.policy["round_deadline"] = 6.0
        window.rounds = frozenset([entry.round_id])
        text, values = self._named(entry.policy)
        (nonce,) = conn.execute(f"SELECT nonce FROM quorate.open_round(%s, %s, %s::int[]{text})",
                                [entry.round_id, entry.quorum, nodes, *values]).fetchone()
        some = nodes[:max(1, len(nodes) // 2)]
        payloads = [self._envelope(dice) for _ in some]
        conn.execute("SELECT quorate.distribute(%s, %s, %s::int[], %s::bytea[])", [entry.round_id, nonce, some, payloads])
        time.sleep(fault.lasts)
        if not commit:
            conn.rollback()
            entry.known = "refused"
            return
        self._distributed(entry, some, payloads)
        self._exists(entry)
        conn.commit()
        entry.known, entry.nonce = "committed", nonce
        self._distributed(entry, some, payloads)
