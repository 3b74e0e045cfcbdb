"""What the demo shows: aligned tables, progress, and a little colour when a person is looking."""

import fnmatch
import os
import sys
import time

WIDTH = 100
INDENT = "    "
TTY = sys.stdout.isatty()
COLOUR = TTY and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
try:
    "✓✗→·×…".encode(sys.stdout.encoding)
    YES, NO, ARROW, DOT, TIMES, DOTS = "✓", "✗", "→", " · ", "×", "…"
except (UnicodeEncodeError, LookupError):
    YES, NO, ARROW, DOT, TIMES, DOTS = "ok:", "FAILED:", "->", ", ", "x", "..."


class Failed(Exception):
    """A scene did not prove its point."""


def paint(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def bold(text: str) -> str:
    return paint("1", text)


def dim(text: str) -> str:
    return paint("2", text)


def green(text: str) -> str:
    return paint("32", text)


def red(text: str) -> str:
    return paint("31", text)


def say(text: str = "") -> None:
    print(INDENT + text if text else "", flush=True)


class Progress:
    """One line that grows with what has been done."""

    def __init__(self, title: str):
        self.began, self.first = time.monotonic(), True
        print(INDENT + dim(f"{title:<10}"), end="", flush=True)

    def step(self, text: str) -> None:
        print(("" if self.first else dim(DOT)) + text, end="", flush=True)
        self.first = False

    def done(self) -> None:
        print(dim(f"  {time.monotonic() - self.began:.1f} s"), flush=True)


def waiting(text: str) -> None:
    """Says what is awaited; on a terminal the next output takes its place."""
    if TTY:
        print(f"\r{INDENT}{dim(f'{DOTS} {text}')}\033[K\r", end="", flush=True)


def waited() -> None:
    if TTY:
        print("\r\033[K", end="", flush=True)


def command(words: list[str], answer: str = "") -> None:
    """A command line as a person would type it, broken where it is too long, and what came of it."""
    parts = words[:1]
    for before, word in zip(words, words[1:]):  # an option and its value stay together
        if before.startswith("--"):
            parts[-1] += " " + word
        else:
            parts.append(word)
    line, used = INDENT + dim("$ ") + parts[0], len(INDENT) + 2 + len(parts[0])
    for part in parts[1:]:
        if used + 1 + len(part) > WIDTH - 2:
            line, used = line + " \\\n" + INDENT + "     " + part, len(INDENT) + 5 + len(part)
        else:
            line, used = line + " " + part, used + 1 + len(part)
    print(line, flush=True)
    if answer:
        say(f"  {dim(ARROW)} {answer}")


def table(query: str, columns: list[str], rows: list[list[str]]) -> None:
    """A query and its rows: numbers to the right, all else to the left."""
    for line in query.splitlines():
        say(paint("36", line))
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows)]
    right = [all(row[i].lstrip("-").isdigit() for row in rows) and bool(rows) for i in range(len(columns))]

    def line(cells: list[str]) -> str:
        return "   ".join(cell.rjust(width) if to_right else cell.ljust(width)
                          for cell, width, to_right in zip(cells, widths, right)).rstrip()

    say("  " + dim(line(columns)))
    for row in rows:
        say("  " + line(row))


def compare(rows: list[list[str]], expected: list[str]) -> None:
    """Each row must look as expected: its cells joined by a space, with * for what may vary."""
    got = [" ".join(row) for row in rows]
    if len(got) != len(expected) or not all(map(fnmatch.fnmatchcase, got, expected)):
        raise Failed(f"the rows above should be {expected}, but are {got}")


class Scene:
    """The frame of one scene: its title, and its verdict with the time it took."""

    def __init__(self, letter: str, title: str):
        self.began = time.monotonic()
        print(f"\n{bold(f'({letter}) {title}')}", flush=True)

    def proved(self, text: str) -> None:
        print(f"{INDENT}{green(YES)} {text}{dim(f'  {time.monotonic() - self.began:.1f} s')}", flush=True)
