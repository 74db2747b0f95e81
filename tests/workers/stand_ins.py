"""Modules with what the lab calls of wandb 0.31 and trackio 0.43: `init` by these names, `Run.log`, `Run.finish`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest


@dataclass
class Tracked:
    """What a service would hold of a run, across all processes that log to it."""

    config: dict[str, Any]
    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    finished: int = 0
    exit_code: int | None = None


class Run:
    """A run as `init` returns it. `breaks_at` is a step at which the service fails."""

    def __init__(self, tracked: Tracked, breaks_at: int | None, at_finish: Callable[[], None], url: str = ""):
        self._tracked, self._breaks_at, self._at_finish, self.url = tracked, breaks_at, at_finish, url

    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        if self._breaks_at is not None and step == self._breaks_at:
            raise RuntimeError("The network is down.\nTry again")
        assert step is not None and (not self._tracked.rows or step > self._tracked.rows[-1][0]), "steps only grow"
        self._tracked.rows.append((step, dict(data)))

    def finish(self, exit_code: int | None = None) -> None:
        self._tracked.finished += 1
        self._tracked.exit_code = exit_code
        self._at_finish()


class Service:
    """The runs of a stand-in, by project and id or name."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], Tracked] = {}
        self.breaks_at: int | None = None
        self.refuses = ""
        self.at_finish: Callable[[], None] = lambda: None

    def opened(self, project: str, name: str, config: dict[str, Any], resume: str, url: str = "") -> Run:
        if self.refuses:
            raise ValueError(self.refuses)
        assert resume == "allow"
        return Run(self.runs.setdefault((project, name), Tracked(config)), self.breaks_at,
                   self.at_finish, url)


def install(monkeypatch: pytest.MonkeyPatch, name: str) -> Service:
    """Have `import NAME` give a stand-in."""
    service, module = Service(), ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)

    def wandb_init(*, project: str, id: str, name: str, config: dict, resume: str, dir: str) -> Run:
        return service.opened(project, id, config, resume, f"https://wandb.invalid/{project}/{id}")

    def trackio_init(project: str, name: str | None = None, *, config: dict | None = None,
                     resume: str = "never") -> Run:
        return service.opened(project, str(name), config or {}, resume)

    module.init = {"wandb": wandb_init, "trackio": trackio_init}[name]
    monkeypatch.setitem(sys.modules, name, module)
    return service
