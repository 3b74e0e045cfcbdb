"""Does what the schedule says: one method per kind of fault, one thread per lane."""

import collections
import contextlib
import os
import random
import signal
import threading
import time

import psycopg
from record import Record
from schedule import COORDINATORS, LANES, Fault
from stage import Stage, mood

SOME_OPEN = "SELECT round_no FROM quorate_store.round WHERE state = 'open' AND round_no > 0 ORDER BY random() LIMIT 40"
LOCK = "SELECT l.round_id FROM quorate_store.round r JOIN quorate_store.ledger l USING (round_no) WHERE r.round_no = ANY (%s) FOR UPDATE OF r SKIP LOCKED"


class Faults:
    def __init__(self, stage: Stage, record: Record, lanes: dict[str, list[Fault]], load):
        self.stage, self.record, self.lanes, self.load = stage, record, lanes, load
        self.done: collections.Counter = collections.Counter()
        self.problems: list[str] = []
        self._ended = {name: threading.Event() for name in lanes}

    def start(self) -> None:
        self.began = time.time()
        for lane in self.lanes:
            threading.Thread(target=self._live, args=(lane,), daemon=True).start()

    def over(self) -> bool:
        return all(ended.is_set() for ended in self._ended.values())

    def join(self) -> None:
        for lane, ended in self._ended.items():
            if not ended.wait(180):
                self.problems.append(f"the lane {lane} does not end")

    def _live(self, lane: str) -> None:
        """Stays when its faults are done: programs end with the thread that started them (setpriv --pdeathsig)."""
        self._run(lane)
        self._ended[lane].set()
        threading.Event().wait()

    def _run(self, lane: str) -> None:
        free_at = self.began
        for fault in self.lanes[lane]:
            # A slow machine takes longer than was drawn: the rest between two faults is kept all the same.
            time.sleep(max(0.0, self.began + fault.at - time.time(), free_at - time.time()))
            try:
                with self.record.window(fault) as window:
                    getattr(self, fault.kind.replace("-", "_"))(fault, window)
                self.done[fault.kind] += 1
                free_at = time.time() + LANES[lane][0]
            except Exception as error:  # pylint: disable=broad-except
                self.problems.append(f"{fault}: {type(error).__name__}: {error}")
                return

    # Coordinators.

    def coordinator_kill(self, fault: Fault, _window) -> None:
        self.stage.coordinators[fault.target].kill()
        time.sleep(fault.lasts)
        self.stage.start_coordinator(fault.target, ready=False)

    def coordinators_all_killed(self, fault: Fault, _window) -> None:
        for name in COORDINATORS:
            self.stage.coordinators[name].kill()
        time.sleep(fault.lasts)
        for name in COORDINATORS:
            self.stage.start_coordinator(name, ready=False)

    def coordinator_freeze(self, fault: Fault, _window) -> None:
        self.stage.coordinators[fault.target].kill(signal.SIGSTOP)
        time.sleep(fault.lasts)
        self.stage.coordinators[fault.target].kill(signal.SIGCONT)

    def coordinator_term(self, fault: Fault, _window, twice: bool = False) -> None:
        program = self.stage.coordinators[fault.target]
        program.tell_to_stop()
        if twice:
            time.sleep(0.05)
            with contextlib.suppress(ProcessLookupError):
                program.kill(signal.SIGTERM)
        status = program.stop(timeout=60)
        if status != 0:
            self.problems.append(f"{fault.target} ended with {status} after SIGTERM")
        time.sleep(fault.lasts)
        self.stage.start_coordinator(fault.target, ready=False)

    def coordinator_term_twice(self, fault: Fault, window) -> None:
        self.coordinator_term(fault, window, twice=True)

    # PostgreSQL.

    def _signal_backends(self, function: str) -> None:
        with self.stage.pair.primary.connect() as conn:
            conn.execute(f"SELECT {function}(pid) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"
                         " AND backend_type = 'client backend'")

    def backends_terminated(self, _fault, _window) -> None:
        self._signal_backends("pg_terminate_backend")

    def backends_cancelled(self, _fault, _window) -> None:
        self._signal_backends("pg_cancel_backend")

    def one_backend_killed(self, fault: Fault, _window) -> None:
        """A crash of one backend, upon which the postmaster ends all of them and recovers."""
        with self.stage.pair.primary.connect() as conn:
            pids = [pid for (pid,) in conn.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'quorate%' ORDER BY pid")]
        if pids:
            os.kill(random.Random(str(fault)).choice(pids), signal.SIGKILL)
        self.stage.pair.wait_answer()
        self.stage.pair.wait_in_sync()

    def _restart(self, fault: Fault, mode: str) -> None:
        pair = self.stage.pair
        pair.stop(pair.primary, mode)
        time.sleep(fault.lasts)
        pair.start(pair.primary)
        pair.wait_in_sync()

    def postgres_restart_fast(self, fault: Fault, _window) -> None:
        self._restart(fault, "fast")

    def postgres_restart_immediate(self, fault: Fault, _window) -> None:
        self._restart(fault, "immediate")

    def standby_stopped(self, fault: Fault, _window) -> None:
        pair = self.stage.pair
        pair.stop(pair.standby, "fast")
        time.sleep(fault.lasts)
        pair.start(pair.standby)
        pair.wait_in_sync()

    def failover_rewind(self, _fault, _window) -> None:
        self.stage.pair.fail_over("rewind")

    def failover_basebackup(self, _fault, _window) -> None:
        self.stage.pair.fail_over("copy")

    # Custodians.

    def custodian_kill(self, fault: Fault, _window, number: int = signal.SIGKILL) -> None:
        custodian = self.stage.custodians[fault.target]
        if number == signal.SIGKILL:
            custodian.program.kill()
        else:
            status = custodian.program.stop(timeout=30)
            if status != 0:
                self.problems.append(f"{custodian.program.name} ended with {status} after SIGTERM")
        time.sleep(fault.lasts)
        custodian.start()

    def custodian_term(self, fault: Fault, window) -> None:
        self.custodian_kill(fault, window, signal.SIGTERM)

    def custodian_freeze(self, fault: Fault, _window) -> None:
        program = self.stage.custodians[fault.target].program
        program.kill(signal.SIGSTOP)
        time.sleep(fault.lasts)
        program.kill(signal.SIGCONT)

    def node_misbehaves(self, fault: Fault, _window) -> None:
        node = self.stage.nodes[fault.target]
        before = node.primary.default
        node.primary.default = mood("foul", random.Random(str(fault)))
        time.sleep(fault.lasts)
        node.primary.default = before

    def node_dark(self, fault: Fault, _window) -> None:
        node = self.stage.nodes[fault.target]
        node.primary.darken()
        time.sleep(fault.lasts)
        node.primary.light()

    # Networks.

    def _cut(self, relays: list[str], mode: str, fault: Fault) -> None:
        for relay in relays:
            self.stage.relays.set(relay, mode=mode)
        time.sleep(fault.lasts)
        for relay in relays:
            self.stage.relays.set(relay, mode="pass")

    def custodian_refuses(self, fault: Fault, _window) -> None:
        self._cut([f"custodian {fault.target}"], "refuse", fault)

    def custodian_hole(self, fault: Fault, _window) -> None:
        self._cut([f"custodian {fault.target}"], "hole", fault)

    def custodian_deaf(self, fault: Fault, _window) -> None:
        self._cut([f"custodian {fault.target}"], "deaf", fault)

    def custodian_reset(self, fault: Fault, _window) -> None:
        self._cut([f"custodian {fault.target}"], "refuse", fault)

    def _cut_database(self, mode: str, fault: Fault) -> None:
        self._cut([f"{fault.target} {member.name}" for member in self.stage.pair.members], mode, fault)

    def database_cut(self, fault: Fault, _window) -> None:
        self._cut_database("refuse", fault)

    def database_hole(self, fault: Fault, _window) -> None:
        self._cut_database("hole", fault)

    def database_deaf(self, fault: Fault, _window) -> None:
        self._cut_database("deaf", fault)

    def database_reset(self, fault: Fault, _window) -> None:
        self._cut_database("refuse", fault)

    # Clients.

    def _as_client(self, work) -> None:
        """Calls work(conn) in a transaction that ends whichever way, also when the database goes meanwhile."""
        with contextlib.suppress(psycopg.Error):
            with psycopg.connect(self.stage.pair.conninfo(), application_name="client") as conn:
                conn.execute("SET lock_timeout = '2s'")
                work(conn)

    def rounds_locked(self, fault: Fault, window) -> None:
        def work(conn) -> None:
            numbers = [number for (number,) in conn.execute(SOME_OPEN)]
            window.rounds = frozenset(round_id for (round_id,) in conn.execute(LOCK, [numbers]))
            time.sleep(fault.lasts)

        self._as_client(work)

    def tables_locked(self, fault: Fault, _window) -> None:
        """As a migration would, but longer than one should."""
        def work(conn) -> None:
            conn.execute("LOCK TABLE quorate_store.round, quorate_store.attempt IN ACCESS EXCLUSIVE MODE")
            time.sleep(fault.lasts)

        self._as_client(work)

    def dealer_dawdles(self, fault: Fault, window, commit: bool = True) -> None:
        """Opens a round, distributes half of it and then does nothing for a while, all in one transaction."""
        self._as_client(lambda conn: self.load.dawdle(conn, fault, window, commit))

    def dealer_rolls_back(self, fault: Fault, window) -> None:
        self.dealer_dawdles(fault, window, commit=False)
