"""Where the programs under test are, and how sanitizers are set when they were built with them."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("QUORATE_BUILD", ROOT / "build")).resolve()
CRASH_BUILD = BUILD / "crash"  # ends where QUORATE_CRASH_AT says

# Harmless without sanitizers. A report ends the program with 99, so that nobody overlooks it.
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
    "LSAN_OPTIONS": "exitcode=99",
}
# Tests count descriptors and look for libraries; in a process that keeps others out, only root may.
LOOKED_INTO = {} if os.geteuid() == 0 else {"QUORATE_ALLOW_CORE_DUMPS": "1"}
SANITIZER_MARKS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "AddressSanitizer:DEADLYSIGNAL")


def program(name: str, build: pathlib.Path = BUILD) -> str:
    path = build / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built: run make")
    return str(path)


def environment(**more: str) -> dict:
    """The environment of a program under test: none of the user's PG* and QUORATE_* variables leak into it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "QUORATE_"))}
    return {**kept, **SANITIZER_ENVIRONMENT, **LOOKED_INTO, **more}
