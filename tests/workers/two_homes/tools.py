"""The machines, and what a run left in the store."""

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runs import fake
from tests.workers.tools import run

STEPS = 60  # checkpoints at 0, 50 and the end


@dataclass(frozen=True)
class Machines:
    """The shared folder, and the homes by their names. One home is in use; the others cannot be seen."""

    root: Path
    patch: pytest.MonkeyPatch

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def at(self, name: str) -> Path:
        for thread in threading.enumerate():
            if thread.name == "publisher":  # that of a worker which has ended: its process would be gone
                thread.join(2)
        for home in self.root.glob("home-*"):
            home.rename(home.with_name(home.name.replace("home-", "hidden-")))
        hidden, home = self.root / f"hidden-{name}", self.root / f"home-{name}"
        if hidden.exists():
            hidden.rename(home)
        self.patch.setenv("RL_LAB_HOME", str(home))
        return home

    def unplug(self) -> None:
        self.shared.rename(self.root / "unplugged")

    def plug(self) -> None:
        (self.root / "unplugged").rename(self.shared)


def interrupt():
    raise KeyboardInterrupt


_learnt: dict[str, list[tuple]] = {}


def whole(store, spec):
    """The numbers of an undisturbed run of `spec`. They are the same in every store, so it is run once."""
    if spec.hash() not in _learnt:
        run_id = store.create(spec, mine=True)
        assert run(store, run_id) == "finished"
        _learnt[spec.hash()] = fake.trained(store, run_id)
    return _learnt[spec.hash()]


def published(store, run_id) -> list[str]:
    return [event.kind for event in store.events_after(run_id) if event.kind in ("published", "unpublished")]


def objects(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
