"""Bad inputs to the command line, each in a process of its own: one sentence answers it, nothing is written elsewhere.

A server imports torch and the lab once, and every input is answered in a fork of it.
"""

import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from labcore.cli.main import main
from tests.soak.made_up import Good, Input, bad
from tests.soak.report import Report

PRELOAD = ["tests.soak.inputs", "tests.soak.load", "labcore.workers.worker", "labcore.llm.session",
           "labcore.classic.tabular.session", "labcore.classic.deep.session"]
SECONDS, TRAINING_SECONDS = 90, 4  # to answer; for a run that was accepted and goes on and on
MOST_MEMORY = 8 * 2**30  # bytes of addresses
LONGEST = 1500  # characters of a sentence
processes = get_context("forkserver")


class Inputs:
    """Trials on the lab at `home`, with what they read in the folder `place`; bad ones are kept in `kept`."""

    def __init__(self, report: Report, home: Path, place: Path, kept: Path):
        self._report, self._home, self._place, self._kept = report, home, place, kept
        for folder in ("here", "files", "user", "tmp"):
            (place / folder).mkdir(parents=True)
        self._good = self._made()

    def _made(self) -> Good:
        """Good files, made by the lab itself."""
        files = self._place / "files"
        run = ["run", "--kind", "maze", "--algorithm", "q_learning", "--steps", "8", "--json"]
        assert self._answer([*run, "--out", str(files / "export")])[0] == 0
        run_id = next(path.name for path in self._home.iterdir() if path.name.startswith("q_learning"))
        good = Good(files / "good.zip", next((files / "export").rglob("metrics.csv")), files / "good.jsonl",
                    files / "good.json")
        assert self._answer(["export", run_id, "--capsule", "--out", str(good.capsule)])[0] == 0
        good.jsonl.write_text('{"prompt": "a b", "answer": "b a", "chosen": "b a", "rejected": "a b"}\n' * 40)
        good.maze.write_text('{"rows": ["S..", "#TG"], "rewards": [-10, 10], "step_reward": -0.1, "slip": 0.1, '
                             '"gamma": 0.9}')
        return good

    def trial(self, chance: random.Random) -> None:
        """Give one bad input. Raises AssertionError, saying what is wrong with the answer and how to repeat it."""
        given = bad(chance, self._good, self._place / "files" / "bad")
        before = self._elsewhere()
        code, said = self._answer(given.words)
        wrong = fault(code, said, given.words[0] == "replay")
        if (new := self._elsewhere() - before) and "--out" not in given.words and given.words[0] != "export":
            wrong = f"written outside the lab: {sorted(map(str, new))[:3]}"
        for path in new:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self._report.count("Bad inputs", given.kind)
        self._report.count("Answers to bad inputs", {0: "taken", None: "taken, and stopped as it trained"}.get(
            code, "refused in a sentence") if not wrong else "faults")
        assert not wrong, f"{wrong} (of {self._keep(given, chance)})"

    def _elsewhere(self) -> set[Path]:
        """All that there is beside the lab's folder and that of the good files."""
        around = (self._place, self._home.parent, self._home.parents[1], self._home.parents[2])
        found = {path for folder in around for path in folder.iterdir()}
        return found | {path for folder in ("here", "user", "tmp") for path in (self._place / folder).rglob("*")}

    def _keep(self, given: Input, chance: random.Random) -> str:
        """The words of the command, cut where they are long; its file is put aside."""
        words = list(given.words)
        if given.file:
            self._kept.mkdir(parents=True, exist_ok=True)
            kept = self._kept / f"{given.kind}-{chance.randrange(10**6)}{given.file.suffix}"
            shutil.copy(given.file, kept)
            words[words.index(str(given.file))] = str(kept)
        shown = (word if len(word) < 200 and word.isprintable() else repr(word[:100]) for word in words)
        return f"python -m labcore {' '.join(shown)}"

    def _answer(self, words: Sequence[str]) -> tuple[int | None, str]:
        """The exit status (None: it trained and was stopped) and what was said on standard error."""
        said = self._place / "files" / "stderr"
        process = processes.Process(target=answer, args=(words, self._home, self._place, said))
        process.start()
        process.join(TRAINING_SECONDS)
        if process.is_alive() and said.read_text(errors="replace").startswith("run "):
            os.kill(process.pid, signal.SIGINT)
            process.join(SECONDS)
            code = process.exitcode if process.exitcode not in (0, 130) else None
        else:
            process.join(SECONDS)
            code = process.exitcode
        if process.is_alive():
            process.kill()
            process.join()
            return -9, f"no answer in {SECONDS} s"
        return code, said.read_text(errors="replace")


def answer(words: Sequence[str], home: Path, place: Path, said: Path) -> None:
    """In a fork: one command as from a shell, its words on standard error kept in a file."""
    os.chdir(place / "here")
    os.environ |= {"RL_LAB_HOME": str(home), "HOME": str(place / "user"), "TMPDIR": str(place / "tmp"),
                   "HF_HUB_OFFLINE": "1"}
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, target in ((1, os.devnull), (2, str(said))):
        with open(target, "wb") as file:
            os.dup2(file.fileno(), number)
    sys.exit(main(words))


def fault(code: int | None, said: str, replayed: bool = False) -> str:
    """What is wrong with an answer; empty where nothing is. A run names itself first, and may then fail in a line. A
    replay says on standard output that its numbers differ."""
    lines = said.splitlines()
    own = lines[1:] if lines and lines[0].startswith("run ") else lines
    if "Traceback (most recent call last)" in said:
        return f"a traceback: {lines[-1][:300]}"
    if code is None or code == 0 or (replayed and code == 1 and "labcore: " not in said):
        return ""
    if code not in (1, 2):
        return f"exit status {code}: {said[-300:]}"
    if len(own) != 1 or not own[0].startswith(("labcore: ", "failed: ")):
        return f"not one line: {said[:500]!r}"
    return f"a line of {len(own[0])} characters: {own[0][:300]}" if len(own[0]) > LONGEST else ""
