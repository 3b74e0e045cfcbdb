"""`quorate` as tests call it: on the database of a lab, with the exit code that they expect."""

import json
import re
import secrets
import subprocess

from . import build as programs
from . import wire


def plain(*arguments, **options):
    return subprocess.run([programs.program("quorate"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30, cwd="/", check=False, **{"env": programs.environment(), **options})


class Cli:
    """`quorate` on the database of a lab."""

    def __init__(self, lab):
        self.lab = lab
        self.lab.punctual = False  # most of these tests have no coordinator

    def ends(self, code, *arguments, conninfo=None):
        done = self.lab.processes.command(*arguments, conninfo=conninfo or self.lab.db.conninfo)
        assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}\n{done.stderr}"
        return done

    def __call__(self, *arguments, conninfo=None):
        """What a command that ends well prints."""
        done = self.ends(0, *arguments, conninfo=conninfo)
        assert done.stderr == ""
        return done.stdout

    def json(self, *arguments):
        out = self(*arguments, "--json")
        assert out.count("\n") == 1
        return json.loads(out)

    def fails(self, code, *arguments, conninfo=None):
        """The one line on stderr of a command that fails; nothing is on stdout."""
        done = self.ends(code, *arguments, conninfo=conninfo)
        assert done.stdout == "" and re.fullmatch(r"quorate[^\n]*\n", done.stderr), done
        return done.stderr

    def start(self, *arguments):
        return self.start_at(self.lab.db.conninfo, *arguments)

    def start_at(self, conninfo, *arguments):
        return subprocess.Popen([programs.program("quorate"), *arguments, "--db", conninfo],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=programs.environment(), cwd="/")

    def known_nodes(self, count=3):
        """Nodes that nobody serves."""
        for node_id in range(1, count + 1):
            self("node", "add", str(node_id), "--url", f"http://127.0.0.1:9/{node_id}", "--key", wire.KeyPair().public_text)

    def share(self, node_id, payload=None):
        path = self.lab.folder / f"share-{node_id}-{secrets.token_hex(3)}"
        path.write_bytes(payload if payload is not None else secrets.token_bytes(40))
        return f"{node_id}={path}"

    def distribute(self, code, round_id, nonce, *shares):
        """The verdicts by node."""
        options = [part for share in shares for part in ("--share", share)]
        done = self.ends(code, "distribute", round_id, "--nonce", str(nonce), *options, "--json")
        return {row["node_id"]: row["verdict"] for row in json.loads(done.stdout)}

    def await_collector(self):
        """Until `quorate collect` listens and waits; its backend."""
        return self.lab.db.wait("a waiting collector", lambda: [
            row["pid"] for row in self.lab.db.rows(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'quorate' "
                "AND state = 'idle' AND (query LIKE '%%quorate.collect(%%' OR query LIKE '%%quorate.rounds%%')")])[0]


def ended(process, timeout=30):
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err
