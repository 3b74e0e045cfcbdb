"""An answer of the database that comes late, after the coordinator has read on its other connection what the answer is about."""

import re
import socket
import struct
import threading


class Relay:
    """Between a coordinator and the server's Unix socket. Holds back what the server says on the first connection that names `held`."""

    def __init__(self, server: str):
        self.server, self.held, self.pid = server, None, None
        self.holds, self.go_on = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_) -> None:
        self.go_on.set()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(self.server)
            for source, sink, answers in ((ours, theirs, False), (theirs, ours, True)):
                threading.Thread(target=self._pump, args=(source, sink, answers), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        pid = None
        try:
            while piece := source.recv(65536):
                if answers and pid is None and (key := re.search(rb"K\x00\x00\x00\x0c(.{4})", piece, re.DOTALL)):
                    (pid,) = struct.unpack("!I", key[1])
                if answers and self.held is not None and self.held in piece and not self.holds.is_set():
                    self.pid = pid
                    self.holds.set()
                    self.go_on.wait(60)
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)  # the other direction ends, too
            except OSError:
                pass
        sink.close()


def test_a_claim_whose_answer_is_late_is_sent_once(lab):
    """Its coordinator loses the other connections meanwhile, and reads on one of them what it owns: the round is sent, settled and forgotten by
    then, and must not be sent again."""
    node, other = lab.node(), lab.node()
    with Relay(str(lab.cluster.socket_dir / f".s.PGSQL.{lab.cluster.port}")) as relay:
        lab.processes.coordinator(
            f"host=127.0.0.1 port={relay.port} user=postgres dbname={lab.db.name} sslmode=disable gssencmode=disable", lab.key_file, options=("--lease", "1h"))
        ours = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'quorate %%'"
        lab.db.wait("it has all its connections", lambda: lab.db.one(f"SELECT count(*) {ours}") == 5)
        round_id = lab.db.new_round_id()
        relay.held = round_id.encode()
        lab.db.submit(1, [node], round_id=round_id, round_deadline="60 s", per_share_timeout="10 s")
        assert relay.holds.wait(20)
        assert lab.db.one(f"SELECT count(pg_terminate_backend(pid)) {ours} AND pid <> %s", relay.pid) == 4
        assert lab.db.wait_settled(round_id)["state"] == "complete"
        beats = lab.db.one("SELECT heartbeat_at FROM quorate_store.coordinator")
        lab.db.wait("a beat", lambda: lab.db.one("SELECT heartbeat_at > %s FROM quorate_store.coordinator", beats))
        relay.go_on.set()
        assert lab.db.wait_settled(lab.db.submit(2, [node, other]))["state"] == "complete"
    assert len(node.requests) == 2
