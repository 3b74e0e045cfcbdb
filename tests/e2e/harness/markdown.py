"""Reads what is testable in a Markdown file: fenced blocks, links, and commands named in the prose."""

import dataclasses
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(path: pathlib.Path) -> list[Block]:
    found, language, text, began = [], None, [], 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if language is None and line.startswith("```"):
            language, text, began = line[3:], [], number
        elif line == "```":
            found.append(Block(language, "\n".join(text) + "\n", began))
            language = None
        elif language is not None:
            text.append(line)
    assert language is None, f"{path}: the block of line {began} never ends"
    return found


def prose(path: pathlib.Path) -> str:
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)


def links(path: pathlib.Path) -> list[str]:
    return re.findall(r"\]\(([^)#]+)", prose(path))


def code_spans(path: pathlib.Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(path))
