"""Starts the peers: the same job built on public job queues, and in memory; they are installed by peers/install below the build folder."""

import contextlib
import pathlib
import subprocess

from harness.build import BUILD, environment
from harness.processes import Process

from . import ROOT, contenders

FOLDER = BUILD / "peers"


def install() -> None:
    subprocess.run([ROOT / "bench" / "peers" / "install", FOLDER], stdin=subprocess.DEVNULL, check=True)


def _command(script: str, *arguments: str) -> list[str]:
    return [str(FOLDER / "node"), str(FOLDER / script), *arguments]


def _variables(here, urls: list[str]) -> dict[str, str]:
    return {"NODES": " ".join(urls), "PGHOST": str(here.cluster.socket_dir), "PGPORT": str(here.cluster.port), "PGUSER": "postgres",
            "PGDATABASE": here.database, "NODE_ENV": "production", "NO_LOG_SUCCESS": "1"}


def _start(here, urls: list[str], script: str, *arguments: str) -> Process:
    with here.connect() as conn:
        conn.execute(contenders.PEER_TABLES)
    process = here.programs.start(script, _command(script, *arguments), _variables(here, urls))
    process.wait_line("^ready$", timeout=60)
    return process


def graphile(here, tuned: bool = False) -> contenders.Contender:
    _start(here, here.unsigned_nodes(), "graphile.mjs", *(["--tuned"] if tuned else []))
    return contenders.graphile()


@contextlib.contextmanager
def pgboss(here):
    """The contender, and how it is dealt: its own insert() is its only way in."""
    urls = here.unsigned_nodes()
    _start(here, urls, "pgboss.mjs")
    contender = contenders.Contender("pg-boss", "", "bench_round")
    with subprocess.Popen(_command("pgboss.mjs", "deal"), env=environment(**_variables(here, urls)), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, bufsize=1) as dealer:

        def submit(prefix: str, rounds: int) -> None:
            dealer.stdin.write(f"{prefix} {rounds} {contender.nodes} {contender.quorum} {contender.envelope}\n")
            answer = dealer.stdout.readline()
            assert answer == "dealt\n", f"the dealer of pg-boss ended or said {answer!r}"

        try:
            yield contender, submit
        finally:
            dealer.kill()


def router(here, rounds: int) -> float:
    """Rounds/s of the in-memory router."""
    command = ["/usr/bin/python3", str(pathlib.Path(__file__).parents[1] / "peers" / "router.py"), str(rounds), *here.unsigned_nodes()]
    return float(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=120).stdout)


def curl_rate(here, requests: int) -> float:
    """Requests/s of libcurl on libev against the same nodes."""
    command = [str(BUILD / "bench-curl-rate"), str(requests), *here.unsigned_nodes()]
    return float(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=120).stdout)
