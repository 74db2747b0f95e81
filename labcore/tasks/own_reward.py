"""Code of the user's own: reward functions, and environments, in Python files in the folder `rewards` of the lab, or
named on the command line.

No spec, link, upload or capsule brings code: each holds a function's name and the hash of its file, and a run takes the
function from a file that lies on this machine. The command `--reward FILE:function` keeps a copy of the file in
`RL_LAB_HOME/rewards/HASH/`, so that runs in other processes and later forks find it; a file that is put into
`RL_LAB_HOME/rewards` by hand is offered on the page. What a function is called with stands in `reward_call`.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from labcore.catalog.reward_terms import BUILT_IN, Term, terms
from labcore.errors import LabError, listed, os_reason, quoted
from labcore.runs.files import atomic, untrusted
from labcore.runs.files.paths import check_writable, home, made, path_of

Function = Callable[..., Any]


@dataclass(frozen=True)
class Use:
    """The use of a function or class of the user's, as sentences call it, and the option that names its file."""

    name: str
    option: str
    kind: str
    example: str


REWARD = Use("reward", "--reward", "function", "my_reward.py:score")
ENVIRONMENT = Use("environment", "--environment", "class", "my_environment.py:Shop")
ORIGIN = "origin"  # beside a kept file: where it was given from
DIGITS = 12  # of a file's SHA-256
BEGINS = frozenset({"reset", "start_interaction", "generate_response"})  # methods of environments

_given: dict[str, Function] = {}  # by the key of their term
_modules: dict[str, ModuleType] = {}  # by the hash of their file
_WEIGHED = re.compile(r"(?P<place>.+)=(?P<weight>[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)", re.IGNORECASE)


def root() -> Path:
    """The folder of reward files; not made here."""
    return home() / "rewards"


def weighed(word: str) -> tuple[str, float]:
    """The place and the weight of an option FILE:function=WEIGHT; the weight is 1 where it has none.

    >>> weighed("mine.py:right=0.5"), weighed("a=b.py:right")
    (('mine.py:right', 0.5), ('a=b.py:right', 1.0))
    """
    found = _WEIGHED.fullmatch(word)
    return (found["place"], float(found["weight"])) if found else (word, 1.0)


def register(place: str, use: Use = REWARD) -> str:
    """Load FILE:function for this process, and keep the file for others. Returns how specs call it: "FILE:function
    HASH", without the folder. Of a file with one reward function FILE is enough; a source of `BUILT_IN` is itself.
    Raises LabError if there is no such file or function, the file cannot be run, or the lab is shared for reading."""
    check_writable()
    if place in BUILT_IN:
        return place
    file, function = _parted(place, use)
    path = path_of(file)
    source = untrusted.read(path)
    if path.suffix != ".py":
        raise LabError(f"The {use.name} file {path} is not a Python file: its name must end in .py.")
    [term] = terms(f"{path.name}:{function or _only(path, source, use)} {_hash(source)}")
    _given[term.key] = _function(term, path, source, use)
    _keep(path, source, use)
    return term.key


def _parted(place: str, use: Use) -> tuple[str, str]:
    if place.endswith(".py"):
        return place, ""
    file, _, function = place.rpartition(":")
    if not file or not function.isidentifier():
        raise LabError(f"{use.option} {quoted(place)} is not FILE:{use.kind}: write for example "
                       f"{use.option} {use.example}.")
    return file, function


def _only(path: Path, source: bytes, use: Use) -> str:
    """The one reward function or environment of a file. Raises LabError where there is none, or several."""
    found = names_in(source, use)
    if len(found) != 1:
        none = ("function with a parameter completions" if use is REWARD
                else "class with a method that begins an episode")
        plural = {"function": "functions", "class": "classes"}[use.kind]
        there = f"has the {plural} {listed(found)}" if found else f"has no {none}"
        raise LabError(f"The {use.name} file {path.name} {there}: name one of its {plural}, for example "
                       f"{use.option} {path.name}:{found[0] if found else use.example.partition(':')[2]}.")
    return found[0]


def _hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:DIGITS]


def _keep(path: Path, source: bytes, use: Use) -> None:
    """Keep a file under its hash, with where it came from."""
    folder = made(root() / _hash(source))
    try:
        atomic.write_bytes(folder / path.name, source)
        atomic.write_text(folder / ORIGIN, str(path.absolute()))
    except OSError as error:
        raise LabError(f"The {use.name} file {path.name} cannot be kept in {folder} ({os_reason(error)}): free some "
                       "space, or set RL_LAB_HOME to a folder that you may write to.") from error


# ---- files that are there ------------------------------------------------------------------------------------------


def offered() -> list[str]:
    """The terms that a sum of rewards may have here: those that are built in, and the functions of all files."""
    return [*BUILT_IN, *own(REWARD)]


def own(use: Use) -> list[str]:
    """The keys of all functions or classes of the user's files here that can be used so; of those with one name the
    newest. The files are read, not run."""
    newest: dict[str, str] = {}
    for path, source in _files():
        for name in names_in(source, use):
            newest.setdefault(f"{path.name}:{name}", _hash(source))
    return [f"{name} {digits}" for name, digits in newest.items()]


def names_in(source: bytes, use: Use) -> list[str]:
    """The functions or classes of a Python file that can be used so; none where it is no Python."""
    return functions_in(source) if use is REWARD else classes_in(source)


def _files() -> Iterator[tuple[Path, bytes]]:
    """All reward files with what is in them, the newest first; one that cannot be read is none."""
    paths = [*root().glob("*.py"), *root().glob("*/*.py")]
    with suppress(OSError):  # one may go while it is looked at
        paths.sort(key=lambda path: -path.stat().st_mtime_ns)
    for path in paths:
        with suppress(LabError):
            yield path, untrusted.read(path)


def classes_in(source: bytes) -> list[str]:
    """The classes of a Python file with a method that begins an episode; none where it is no Python."""
    return [node.name for node in _body(source) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            and BEGINS & {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}]


def _body(source: bytes) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


@lru_cache(maxsize=256)
def functions_in(source: bytes) -> list[str]:
    """The functions of a Python file that can be called with completions; none where it is no Python."""
    return [node.name for node in _body(source) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and not node.name.startswith("_")
            and "completions" in [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]]


def check(key: str, use: Use = REWARD) -> None:
    """Load the function of a term, unless this process has it or it is a source that is built in. Raises LabError if no
    file on this machine has its hash, or the file cannot be run."""
    if key in _given or key in BUILT_IN:
        return
    try:
        [term] = terms(key)
    except LabError as error:
        if use is REWARD:
            raise
        raise LabError(f"The {use.name} {quoted(key)} cannot be used: name a {use.kind} of a Python file by "
                       f"{use.option} FILE:{use.kind.capitalize()}.") from error
    for path, source in _files():
        if _hash(source) == term.hash:
            _given[key] = _function(term, path, source, use)
            if path.parent == root():  # it may be changed while a run is not yet resumed
                _keep(path, source, use)
            return
    raise LabError(f"This run needs the {use.name} {use.kind} {term.file}:{term.function} (file hash {term.hash}), and "
                   f"no file here has this hash: put exactly that file into {root()}, or give it with {use.option} "
                   f"FILE:{use.kind}.")


def function(key: str, use: Use = REWARD) -> Function:
    """The function or class of a term. Raises LabError as `check`."""
    check(key, use)
    return _given[key]


# ---- running the user's code ---------------------------------------------------------------------------------------


def _function(term: Term, path: Path, source: bytes, use: Use) -> Function:
    """The function that a term names, from the very bytes that were hashed: Python's cache may be older."""
    wrong = f"The {use.name} file {path} cannot be run (", "): correct it."
    module = _loaded(path, source, wrong)
    with quietly(), blamed(*wrong):  # it may have a __getattr__ of its own
        found: Function | None = getattr(module, term.function, None)
    if not callable(found):
        raise LabError(f"The file {path} has no {use.kind} {quoted(term.function)}: check the name after the colon.")
    return found


def _loaded(path: Path, source: bytes, wrong: tuple[str, str]) -> ModuleType:
    """The module of a file, run once in a process. Modules beside the file that was given can be imported."""
    name = _hash(source)
    if name in _modules:
        return _modules[name]
    origin = path.parent / ORIGIN
    where = Path(origin.read_text("utf-8")) if origin.is_file() else path.absolute()
    module = ModuleType(f"own_reward_{name}")
    module.__file__ = str(where)
    sys.modules[module.__name__] = module  # where a dataclass looks for its annotations
    if str(where.parent) not in sys.path:
        sys.path.append(str(where.parent))  # last: no file beside it takes the place of a library
    with quietly(), blamed(*wrong):
        exec(compile(source, str(where), "exec", dont_inherit=True), module.__dict__)
    _modules[name] = module
    return module


@contextmanager
def blamed(before: str, after: str) -> Iterator[None]:
    """Run the user's code. Raises LabError, between `before` and `after`, where it raises or would end the process."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise LabError(f"{before}{_words(error)}{after}") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Send the prints of the user's code to standard error: standard output may be JSON that a program reads."""
    with redirect_stdout(_stream()), redirect_stderr(_stream()):
        yield


class _Stream(io.TextIOWrapper):
    """A stream that the user's code may close without closing one of the lab's."""

    def close(self) -> None:
        self.flush()


@cache
def _stream() -> _Stream:
    """Standard error under a descriptor of its own; a process without one has none to print to."""
    try:
        descriptor = os.dup(2)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    return _Stream(os.fdopen(descriptor, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _words(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # an error whose text is the user's code as well
        lines = []
    return f"{type(error).__name__}: {lines[0].rstrip('.')[:200]}" if lines else type(error).__name__
