"""Traffic that goes on while a test changes something, and custodians of ours that start again where they were."""

import threading

from . import wire

PATIENT = {"retry_budget": 8, "base_backoff": "300 ms", "max_backoff": "600 ms", "round_deadline": "20 s"}


class Stream:
    """Submits a round every twentieth of a second, until it is closed; then all are settled."""

    def __init__(self, lab, quorum: int, nodes, **policy):
        self.lab, self.rounds = lab, []
        self._quorum, self._nodes, self._policy = quorum, nodes, {**PATIENT, **policy}
        self._over, self._problem = threading.Event(), None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.wait(0.05):
                self.rounds.append(self.lab.db.submit(self._quorum, self._nodes, **self._policy))
        except BaseException as problem:
            self._problem = problem

    def flows(self, count: int = 10) -> None:
        """Returns when so many rounds that were submitted from now on are complete."""
        first = len(self.rounds)
        self.lab.db.wait("more rounds", lambda: self._problem or len(self.rounds) >= first + count)
        for round_id in self.rounds[first:first + count]:
            assert self.lab.db.wait_state(round_id)["state"] == "complete"

    def close(self) -> list[str]:
        self._over.set()
        self._thread.join()
        assert self._problem is None, self._problem
        for round_id in self.rounds:
            self.lab.db.wait_settled(round_id)
        return self.rounds


def outcomes(lab, rounds) -> set[tuple]:
    return {(a["outcome"], a["http_status"]) for round_id in rounds for a in lab.db.attempts(round_id)}


class Custodians:
    """Three of ours, each with a store and a port of its own, which it keeps when it starts again."""

    def __init__(self, lab):
        self.lab = lab
        self.pairs = {number: wire.KeyPair() for number in (1, 2, 3)}
        self.files = {number: lab.write_key(f"node-{number}.key", pair) for number, pair in self.pairs.items()}
        self.running = {}

    def start(self, number: int, coordinator_key: wire.KeyPair) -> None:
        before = self.running.get(number)
        if before:
            assert before.stop() == 0
        self.running[number] = self.lab.processes.custodian(
            number, self.files[number], coordinator_key.public_text, listen=before.url[7:-1] if before else "127.0.0.1:0",
            options=("--log-level", "debug"))
        if not before:
            self.lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", number, self.running[number].url, self.pairs[number].public_text)
