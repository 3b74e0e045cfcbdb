"""Looks for what is secret in what a run has left behind, in every form in which bytes get written down."""

import base64
import os
import pathlib
import re
import sys

WINDOW = 16  # bytes: half a key is as bad as all of it
BLOCK, CHUNK, MARGIN = 8, 1 << 20, 128


def forms(secret: bytes) -> list[bytes]:
    """Any 16 bytes of it, raw, as hex or as PostgreSQL escapes them; and any 16 characters of its base64, wherever that begins."""
    windows = [secret[at:at + WINDOW] for at in range(max(1, len(secret) - WINDOW + 1))]
    found = set(windows) | {w.hex().encode() for w in windows} | {w.hex().upper().encode() for w in windows}
    found |= {"".join(chr(byte) if 32 <= byte < 127 and byte != 92 else "\\\\" if byte == 92 else f"\\{byte:03o}" for byte in w).encode()
              for w in windows}
    for shift in range(3):
        text = base64.b64encode(secret[shift:])[:(len(secret) - shift) * 8 // 6]  # the last character may depend on what follows
        found |= {text[at:at + WINDOW] for at in range(max(1, len(text) - WINDOW + 1))}
    return [form for form in found if len(form) >= WINDOW]


class Needles:
    """All secrets of a run, in one search. Wherever 16 bytes stand, eight of them fill one of the data's own blocks of eight: those are
    compared as numbers, all at once, and what is alike is then looked at in full."""

    def __init__(self):
        self.names: dict[bytes, str] = {}
        self._blocks: dict[int, set[bytes]] = {}  # of eight bytes -> the forms that hold it

    def add(self, name: str, *secrets: bytes) -> None:
        for secret in secrets:
            assert len(secret) >= WINDOW, f"{name} is too short to be looked for"
            for form in forms(secret):
                self.names[form] = name
                for at in range(len(form) - BLOCK + 1):
                    self._blocks.setdefault(int.from_bytes(form[at:at + BLOCK], sys.byteorder), set()).add(form)

    def in_bytes(self, data: bytes) -> set[str]:
        found = set()
        for start in range(0, len(data), CHUNK):
            piece = data[max(0, start - MARGIN):start + CHUNK]
            piece += bytes(-len(piece) % BLOCK)
            for block in self._blocks.keys() & set(memoryview(piece).cast("Q")):
                found |= {self.names[form] for form in self._blocks[block] if form in piece}
        return found

    def in_files(self, *folders: pathlib.Path) -> dict[str, set[str]]:
        """By file; what is gone by the time that it is read is passed over."""
        found = {}
        for folder in folders:
            for where, _, names in os.walk(folder):
                for name in names:
                    try:
                        secrets = self.in_bytes((pathlib.Path(where) / name).read_bytes())
                    except OSError:
                        continue
                    if secrets:
                        found[f"{where}/{name}"] = secrets
        return found


def cores(*folders: pathlib.Path) -> list[pathlib.Path]:
    """Core files, by what they are and not by their names."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    head = file.read(18)
                if head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], "little") == 4:  # ET_CORE
                    found.append(path)
    return found


def mappings(pid: int) -> list[tuple[int, int, str, set[str]]]:
    """What /proc says of each mapping of a process: from, to, access, and the kernel's flags ("lo" is locked, "dd" is in no core dump)."""
    found, current = [], None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line)
        if head:
            current = (int(head[1], 16), int(head[2], 16), head[3])
        elif line.startswith("VmFlags:"):
            found.append((*current, set(line.split()[1:])))
    return found


def occurrences(pid: int, needle: bytes) -> list[tuple[int, set[str]]]:
    """Where in the memory of a process these bytes stand, and the flags of the mapping; only root may look."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end, access, flags in mappings(pid):
            if "r" not in access:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError, ValueError):  # what the kernel keeps to itself
                continue
            found += [(start + hit.start(), flags) for hit in re.finditer(re.escape(needle), data)]
    return found
