"""A store, checkpoints at the same steps on every machine, and sessions that break."""

from contextlib import ExitStack, closing

import pytest

from labcore.workers import training
from labcore.workers.launcher import Launcher
from tests.runs import fake


@pytest.fixture
def launchers():
    """A function that makes launchers; the fixture closes them at the end of the test."""
    with ExitStack() as opened:
        yield lambda store, command: opened.enter_context(closing(Launcher(store, command)))


@pytest.fixture(autouse=True)
def checkpoints_by_steps(monkeypatch):
    """However slow the disk is while other tests run."""
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)


@pytest.fixture
def breaking(monkeypatch):
    """Have the session raise at a step."""
    def at(step: int, error: BaseException) -> None:
        monkeypatch.setattr(fake.FakeSession, "break_at", {step: error})
    return at
