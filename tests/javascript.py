"""Lints the components' scripts as a browser gets them. `python -m tests.javascript`; the rules are in .oxlintrc.json.

Each component is published as one module, made of its own files and those that it shares with others. The linter sees
that module, so that a name which no file defines is found, and its findings are given at the line of the file.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
UNUSED = "eslint(no-unused-vars)"


class Finding(NamedTuple):
    """What the linter says of a place in a file."""

    path: Path
    line: int
    column: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message} [{self.rule}]"


def modules() -> list[list[Path]]:
    """The files of each component, in the order in which they are joined."""
    from app import components
    from app.components.component import Component

    packages = [import_module(f"{components.__name__}.{found.name}") for found in iter_modules(components.__path__)]
    return [value.files for package in packages for value in vars(package).values() if isinstance(value, Component)]


def findings(files: list[Path]) -> set[Finding]:
    """What the linter finds in the module made of `files`.

    Raises:
        RuntimeError: it is not installed, or broke.
    """
    program = shutil.which("oxlint", path=sysconfig.get_path("scripts"))
    if program is None:
        raise RuntimeError("oxlint is not installed: pip install -r requirements-dev.txt")
    lines = [(path, number, text) for path in files
             for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1)]
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "module.js"
        joined.write_text("".join(f"{text}\n" for _, _, text in lines), "utf-8")
        done = subprocess.run([program, "-c", ROOT / ".oxlintrc.json", "--format=json", joined], text=True,
                              capture_output=True, check=False)
    try:
        found = json.loads(done.stdout)["diagnostics"]
    except (json.JSONDecodeError, KeyError) as error:
        raise RuntimeError(f"oxlint broke: {done.stdout}{done.stderr}") from error
    return {_finding(each, lines) for each in found}


def _finding(found: dict, lines: list[tuple[Path, int, str]]) -> Finding:
    span = found["labels"][0]["span"] if found["labels"] else {"line": 1, "column": 1}
    path, line, _ = lines[min(span["line"], len(lines)) - 1]
    return Finding(path, line, span["column"], found.get("code", "syntax"), found["message"])


def lint(joined: Iterable[list[Path]]) -> list[Finding]:
    """What is wrong in any of these modules. A name that one module leaves unused and another needs is not."""
    found = [(set(files), findings(files)) for files in joined]
    return sorted({each for _, here in found for each in here
                   if each.rule != UNUSED or all(each in others for files, others in found if each.path in files)})


def main() -> int:
    """Print what is wrong, a line each. Returns 1 where there is anything."""
    found = lint(modules())
    for each in found:
        print(each._replace(path=each.path.relative_to(ROOT)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
