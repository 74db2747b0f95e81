"""Bad inputs made up by chance: hostile words, and good files with something wrong in them."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.catalog.kinds import KINDS
from tests.exports.capsules.tools import content, rewritten, sealed

WORDS = ("", " ", ".", "..", "../../x", "/", "/etc/passwd", "~", "-", "--", "-1", "0", "1e999", "nan", "inf", "-inf",
         "1" + "0" * 400, "0x10", "1_000", "½", "٣", "a\nb", "a\rb", "\x1b[31mred", "\u202egpj.exe", "e\u0301",
         "🙂" * 9, "x" * 300, "y/" * 200, "CON", "lab.db", "base", "imported", "imported-x", "sweep-x",
         "<script>alert(1)</script>", "'; DROP TABLE lab_runs; --", "${HOME}", "$(id)", "{{7*7}}", "%s%n", "None",
         "[]", "{}", "true", "run@", "@7", "run@-1", "file:///etc/passwd", "http://localhost:1/x", "\udc80",
         "\u2028", "=1+1", "[[[[", '{"a": 1}')
VALUES: tuple[Any, ...] = (None, True, [], {}, "", "x", -1, 0, 1.5, 10**400, float("nan"), float("inf"), 2**63, "🙂",
                           "x" * 300, "../../x", [[]], {"a": {}}, "<script>", "nan", [1, "a", None])
COMMANDS = ("export", "replay", "import", "compare", "doctor", "play", "pause", "step", "stop", "resume", "delete",
            "restore", "fork", "sweeps", "lesson", "study", "batch", "answer", "mark", "runs", "cost", "label")
OPTIONS = ("--seed", "--steps", "--out", "--model", "--task", "--threads", "--mix", "--prompts", "--text", "--episodes",
           "--older-than", "--set", "--json", "--capsule", "--tag", "--note", "--axis", "--baseline")


@dataclass(frozen=True)
class Good:
    """Files that the lab takes, which the bad ones are made of."""

    capsule: Path
    csv: Path
    jsonl: Path
    maze: Path


@dataclass(frozen=True)
class Input:
    """The words of a command, and the file that they name, if they name one."""

    kind: str
    words: list[str]
    file: Path | None = None


def word(chance: random.Random, most: int = 100_000) -> str:
    """A hostile word: one of the list, two of them, or one many times."""
    one = chance.choice(WORDS)
    how = chance.random()
    if how < 0.6:
        return one
    return (one + chance.choice(WORDS))[:most] if how < 0.9 else (one * chance.choice((50, 5000)))[:most]


def spoilt(chance: random.Random, good: bytes) -> bytes:
    """A file with some places changed."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 3, 20))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 8, 200)))
        token = chance.choice((word(chance, 10_000).encode(errors="surrogateescape"), b"\0", b"\xff\xfe", b"\n\n", b'"',
                               b"," * 3000, b"[" * 100_000, bytes(data[at:end]) * 500, b"1e999", b"", b"\xef\xbb\xbf"))
        data[at:chance.choice((at, end, len(data)))] = token
    return bytes(data)


def altered(chance: random.Random, text: bytes) -> bytes:
    """JSON with one of its values replaced, a key renamed or one taken away."""
    whole = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        for key in part if isinstance(part, dict) else range(len(part)):
            places.append((part, key))
            if isinstance(part[key], dict | list):
                walk(part[key])

    if not isinstance(whole, dict | list) or not whole:
        return json.dumps(chance.choice(VALUES)).encode()
    walk(whole)
    part, key = chance.choice(places)
    how = chance.random()
    if how < 0.75 or isinstance(part, list):
        part[key] = chance.choice(VALUES)
    else:
        moved = part.pop(key)
        if how < 0.9:
            part[word(chance, 1000)] = moved
    return json.dumps(whole).encode()


# ---------------------------------------------------------------- by kind


def _name(chance: random.Random, good: Good, file: Path) -> Input:
    return Input("name", [chance.choice(COMMANDS), *(word(chance) for _ in range(chance.choice((1, 1, 2))))])


def _option(chance: random.Random, good: Good, file: Path) -> Input:
    begin = chance.choice((["run", "--kind", "maze", "--algorithm", "q_learning"], ["clean"], ["runs"], ["list"],
                           ["run", "--kind", "llm", "--algorithm", "grpo"], ["compare", "x"], ["play", "x"]))
    return Input("option", [*begin, chance.choice(OPTIONS), word(chance), *(["--steps", "1"] * (begin[0] == "run"))])


def _knob(chance: random.Random, good: Good, file: Path) -> Input:
    kind = chance.choice(list(KINDS.values()))
    row = chance.choice(list(kind.algorithms.values()))
    task = chance.choice([None, *kind.tasks.values()])
    knob = chance.choice([*row.knobs, *(task.knobs if task else ())])
    small = ["--set", "sft_steps=0"] if any(each.key == "sft_steps" for each in row.knobs) else []
    return Input("knob", ["run", "--kind", kind.key, "--algorithm", row.key, *(["--task", task.key] if task else []),
                          "--steps", "1", *small, "--set", f"{knob.key}={word(chance)}", "--json"])


def _capsule(chance: random.Random, good: Good, file: Path) -> Input:
    file = file.with_suffix(".zip")
    if chance.random() < 0.3:
        file.write_bytes(spoilt(chance, good.capsule.read_bytes()))
    else:
        rewritten(file, content(good.capsule))
        parts = content(file)
        name = chance.choice(sorted(parts))
        change = altered if name.endswith(".json") and chance.random() < 0.7 else spoilt
        if name == "manifest.json":
            rewritten(file, parts | {name: change(chance, parts[name])})
        else:
            sealed(file, {name: None if chance.random() < 0.1 else change(chance, parts[name])})
    return Input("capsule", [chance.choice(("import", "replay")), str(file)], file)


def _csv(chance: random.Random, good: Good, file: Path) -> Input:
    file = file.with_suffix(".csv")
    file.write_bytes(spoilt(chance, good.csv.read_bytes()))
    return Input("csv", ["import", str(file)], file)


def _jsonl(chance: random.Random, good: Good, file: Path) -> Input:
    file = file.with_suffix(".jsonl")
    lines = good.jsonl.read_bytes().splitlines()
    at = chance.randrange(len(lines))
    lines[at] = altered(chance, lines[at])
    file.write_bytes(spoilt(chance, b"\n".join(lines)) if chance.random() < 0.6 else b"\n".join(lines))
    option, algorithm = chance.choice((("--prompts", "grpo"), ("--preferences", "dpo"), ("--text", "sft")))
    return Input("jsonl", ["run", "--algorithm", algorithm, option, str(file), "--steps", "1", "--json",
                           *(["--set", "sft_steps=0"] if algorithm != "sft" else [])], file)


def _maze(chance: random.Random, good: Good, file: Path) -> Input:
    file = file.with_suffix(".json")
    file.write_bytes((altered if chance.random() < 0.6 else spoilt)(chance, good.maze.read_bytes()))
    return Input("maze", ["run", "--kind", "maze", "--algorithm", "q_learning", "--maze", str(file), "--steps", "1",
                          "--json"], file)


KINDS_OF_INPUT: Mapping[str, Callable[[random.Random, Good, Path], Input]] = {
    "name": _name, "option": _option, "knob": _knob, "capsule": _capsule, "csv": _csv, "jsonl": _jsonl, "maze": _maze}


def bad(chance: random.Random, good: Good, file: Path) -> Input:
    """A bad input of a kind drawn at random; what it needs in a file is written to `file` with a suffix."""
    return chance.choice(list(KINDS_OF_INPUT.values()))(chance, good, file)
