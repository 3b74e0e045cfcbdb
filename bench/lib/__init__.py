"""The parts of the benchmark, one job a module; `bench/run` puts them together."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))  # the tests' harness starts databases and programs here as well
