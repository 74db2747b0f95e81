"""The contract between the worker and what it trains: every kind's session keeps it, name by name and type by type."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

from labcore.catalog.kinds import KINDS
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import OnDevice, Record, Session, StartSession, device_of
from labcore.workers.worker import start_session
from tests.runs.fake import start

ATTRIBUTES = typing.get_type_hints(Session)
METHODS = [name for name, member in vars(Session).items() if not name.startswith("_") and callable(member)]
SMALL = {"llm": {"algorithm_key": "grpo", "task_key": "sort", "knobs": {"sft_steps": 0}},
         "exact": {"algorithm_key": "rloo", "task_key": "sorted"},
         "maze": {"algorithm_key": "q_learning", "task_key": "cliff"},
         "cartpole": {"algorithm_key": "ppo", "task_key": "CartPole-v1", "knobs": {"hidden": 8}}}


def kept(session: type) -> list[str]:
    """What of the contract a class of sessions does not keep."""
    fields = typing.get_type_hints(session)
    faults = [name for name, kind in ATTRIBUTES.items() if fields.get(name) != kind]
    for name in METHODS:
        ours, theirs = getattr(Session, name), getattr(session, name, None)
        if theirs is None or not fits(ours, theirs, session):
            faults.append(name)
    return faults


def fits(ours: Callable, theirs: Callable, session: type) -> bool:
    """Whether a method can stand for that of the contract: the same parameters, and a result that it allows."""
    asked, given = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
    if [(each.name, each.kind, each.default) for each in asked.values()] != [
            (each.name, each.kind, each.default) for each in given.values()]:
        return False
    wanted, found = typing.get_type_hints(ours), typing.get_type_hints(theirs)
    result, allowed = found.pop("return", None), wanted.pop("return")
    if allowed is Session:
        return found == wanted and result is session
    return found == wanted and result in ({allowed, Iterator[Record]} if ours is Session.run else {allowed})


def test_the_contract_is_what_the_worker_uses():
    assert set(ATTRIBUTES) == {"spec", "knobs", "step", "updates", "finished_because"}
    assert set(METHODS) == {"start", "run", "save", "fork"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_it(kind):
    session = resolve_name(KINDS[kind].session)
    assert kept(session) == []
    begun: Session = start_session(make(kind=kind, **SMALL[kind]), None, None)
    assert isinstance(begun, Session) and type(begun) is session
    assert (begun.step, begun.updates, begun.finished_because) == (0, 0, "")
    assert (device_of(begun) is not None) == isinstance(begun, OnDevice) == ("device" in typing.get_type_hints(session))


def test_the_session_of_the_tests_keeps_it_where_it_can():
    """It stands for a real one in the tests of the worker."""
    session = start(make(**SMALL["llm"]), None, None)
    assert isinstance(session, Session) and not isinstance(session, OnDevice) and device_of(session) is None
    assert isinstance(object(), Session) is False


@dataclasses.dataclass
class Broken:
    """Lacks `updates`, calls a parameter otherwise, and returns something else."""

    spec: int
    knobs: dict[str, typing.Any]
    step: int
    finished_because: str

    @staticmethod
    def start(spec, base=None, resume=None): ...

    def run(self) -> Iterator[int]: ...

    def save(self, folder: Path) -> None: ...


def test_what_does_not_keep_it_is_found():
    assert kept(Broken) == ["spec", "updates", "start", "run", "fork"]


def test_nobody_takes_a_session_of_no_type():
    """The worker, its steering and its notes say `Session`, and so can be checked."""
    for name in ("labcore.workers.worker:start_session", "labcore.workers.worker:_Drive._forked"):
        assert typing.get_type_hints(resolve_name(name))["return"] is Session, name
    for name in ("labcore.workers.training:Training.__init__", "labcore.runs.steering:Steering.__init__",
                 "labcore.runs.versions:note"):
        assert typing.get_type_hints(resolve_name(name))["session"] is Session, name
    assert typing.get_args(StartSession)[1] is Session
