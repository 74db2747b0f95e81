"""Small faults put into the engine one by one, and whether a test notices: `make mutants`.

The faults are data, `tests/mutations/*.toml`, file by file: what it would break, the text that is there now (exactly
once), the text that takes its place, and in some the one test that is to notice it. Each is applied to a copy of the
checkout, never to the checkout, and that test runs there, or else those of the file: the ones that `tests` names, or
the one that mirrors it; its doctests besides.

    python -m tests.mutants --only kl --jobs 2

torch and pytest are imported once, and every fault is tried in a fork of that process.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import cache_from_source
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 300  # until a fault counts as noticed: it made the tests hang
SLOW_IMPORTS = ("torch", "torch.distributed.tensor", "transformers.models.auto.modeling_auto", "gymnasium",
                "transformers.models.llama.modeling_llama", "transformers.generation", "anyio._backends._asyncio",
                "pytest")
ORDER = ("survived", "stale", "error", "killed")
PASSED, FAILED, COLLECTION_FAILED = 0, 1, 2  # exit codes of pytest


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new` in `file`, which would break `breaks`; `tests` are to notice. Without `old`: no fault."""

    file: str
    tests: tuple[str, ...]
    breaks: str = ""
    old: str = ""
    new: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.breaks}"


@dataclass(frozen=True)
class Outcome:
    """`result` is one of ORDER; `why` explains all but the first and the last."""

    mutation: Mutation
    result: str
    seconds: float = 0.0
    why: str = ""


def load(folder: Path, root: Path) -> list[Mutation]:
    """The mutations of all files in `folder`."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for file, table in tomllib.loads(path.read_text("utf-8")).items():
            examples = (file,) if (root / file).is_file() and ">>> " in (root / file).read_text("utf-8") else ()
            tests = (*(table.get("tests") or [mirror(file)]), *examples)
            found += [Mutation(file, tuple(test) or tests, *fault)
                      for *fault, test in ((*each[:3], each[3:]) for each in table["mutations"])]
    return found


def mirror(file: str) -> str:
    """The test file of a module.

    >>> mirror("labcore/maths/kl.py")
    'tests/maths/test_kl.py'
    """
    _, *folders, name = Path(file).parts
    return str(Path("tests", *folders, f"test_{name}"))


def mutated(text: str, mutation: Mutation) -> str:
    """The source with the fault in it.

    Raises:
        ValueError: the text to replace is not there exactly once.
    """
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(f"{mutation.file} has the text {mutation.old!r} {count} times instead of once: bring the "
                         "mutation up to date with the code.")
    return text.replace(mutation.old, mutation.new)


def copy(root: Path, folder: Path) -> Path:
    """A copy of the checkout without what git and the tools keep in it."""
    folder.mkdir()
    for item in root.iterdir():
        if item.name.startswith(".") or item.name in ("runs", "build"):
            continue
        if item.is_dir():
            shutil.copytree(item, folder / item.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(item, folder)
    return folder


@dataclass(frozen=True)
class Trial:
    """The tests of a mutation under way in `folder`, a copy of the checkout; `original` is the file without fault."""

    mutation: Mutation
    folder: Path
    original: str
    process: ForkProcess
    begun: float

    @staticmethod
    def begin(mutation: Mutation, folder: Path, marks: str) -> Trial:
        """Put the fault in and start the tests. Raises: see `mutated`."""
        path = folder / mutation.file
        original = path.read_text("utf-8")
        write(path, mutated(original, mutation) if mutation.old else original)
        process = get_context("fork").Process(target=_test, args=(folder, mutation.tests, marks))
        process.start()
        return Trial(mutation, folder, original, process, time.monotonic())

    def ended(self, limit: float) -> Outcome | None:
        """What came of it, the fault taken out again; None while it runs. After `limit` seconds it is ended."""
        seconds = time.monotonic() - self.begun
        if self.process.is_alive() and seconds < limit:
            return None
        if self.process.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        write(self.folder / self.mutation.file, self.original)
        code = FAILED if seconds >= limit else self.process.exitcode
        if code in (FAILED, COLLECTION_FAILED):
            return Outcome(self.mutation, "killed", seconds)
        if code == PASSED:
            return Outcome(self.mutation, "survived", seconds)
        return Outcome(self.mutation, "error", seconds, f"pytest ended with {code}: are all of its tests there?")


def write(path: Path, text: str) -> None:
    """Write a source and forget what was compiled of it: by size and second two faults can look the same."""
    path.write_text(text, "utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def run(mutations: Iterable[Mutation], root: Path, jobs: int = 1, seconds: float = SECONDS,
        marks: str = "") -> Iterator[Outcome]:
    """Try each mutation, `jobs` of them at a time, each in a copy of `root`, with the tests that `marks` selects."""
    waiting, running = list(mutations), []
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        free = [copy(root, Path(place, str(number))) for number in range(jobs)]
        while waiting or running:
            while waiting and free:
                mutation = waiting.pop(0)
                try:
                    running.append(Trial.begin(mutation, free[-1], marks))
                    free.pop()
                except ValueError as error:
                    yield Outcome(mutation, "stale", why=str(error))
            wait([trial.process.sentinel for trial in running], timeout=1)
            for trial in list(running):
                if outcome := trial.ended(seconds):
                    running.remove(trial)
                    free.append(trial.folder)
                    yield outcome


def _test(folder: Path, tests: Sequence[str], marks: str) -> None:
    """In a fork: run `tests` in `folder`, in a group of processes of its own; its exit code is pytest's."""
    os.setsid()
    os.chdir(folder)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("labcore", "tests")]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry and Path(entry) != ROOT)]
    import pytest
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests]))


def checks(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Every test file without a fault, or the named tests of one of which no other is run: where these fail by
    themselves, nothing else means anything."""
    asked: dict[str, dict[str, None]] = {}
    for test in (test for each in mutations for test in each.tests):
        asked.setdefault(test.partition("::")[0], {})[test] = None
    return [Mutation(file, (file,) if file in tests else tuple(tests)) for file, tests in asked.items()]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print what came of every mutation and a table; 1 where one survived, is stale or could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="those whose file or description match")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time")
    parser.add_argument("--marks", default="", metavar="EXPRESSION",
                        help="run only the tests that pytest -m selects; 'not long': without those of make test-long")
    parser.add_argument("--unchecked", action="store_true", help="do not first see the tests pass without a fault")
    chosen = parser.parse_args(arguments)
    mutations = [each for each in load(root / "tests" / "mutations", root) if re.search(chosen.only, each.name)]
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in SLOW_IMPORTS:
        import_module(module)
    gc.freeze()  # what is here now is never searched for garbage, in no fork
    begun = time.monotonic()
    first = [] if chosen.unchecked else checks(mutations)
    failing = [each.mutation.file for each in run(first, root, chosen.jobs, marks=chosen.marks)
               if each.result != "survived"]
    if failing:
        print("\n".join(f"{file} fails without any fault: mend it first." for file in failing))
        return 1
    outcomes = []
    for outcome in run(mutations, root, chosen.jobs, marks=chosen.marks):
        outcomes.append(outcome)
        print(f"{len(outcomes):4}/{len(mutations)} {outcome.result:9}{outcome.seconds:6.1f} s  {outcome.mutation.name}",
              flush=True)
    print(table(outcomes, time.monotonic() - begun))
    return int(any(each.result != "killed" for each in outcomes))


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """How many of each kind, file by file, and those that were not noticed by name."""
    files = list(dict.fromkeys(each.mutation.file for each in outcomes))
    width = max(map(len, files), default=0)
    rows = ["", f"{'':{width}}" + "".join(f"{kind:>10}" for kind in ORDER)]
    for file in [*files, ""]:
        counts = [sum(each.result == kind and file in ("", each.mutation.file) for each in outcomes) for kind in ORDER]
        rows.append(f"{file or 'all':{width}}" + "".join(f"{count or '·':>10}" for count in counts))
    rows += [f"{each.result}: {each.mutation.name}" + (f"\n    {each.why}" if each.why else "")
             for each in outcomes if each.result != "killed"]
    return "\n".join([*rows, f"{len(outcomes)} mutations in {seconds:.0f} s"])


if __name__ == "__main__":
    sys.exit(main())
