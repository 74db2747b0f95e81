"""What the lab asks of an object store: nothing happens without one, and one that is set answers every question."""

import inspect
import os
from pkgutil import resolve_name

import pytest

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import storage
from labcore.runs.files.paths import CHECKPOINTS, home, run_folder
from tests.every import every
from tests.runs.files.artifacts.tools import RUN, saved

QUESTIONS = {name: inspect.getclosurevars(question).nonlocals["function"] for name, question in vars(storage).items()
             if hasattr(question, "__wrapped__") and name != "in_home"}


def test_without_a_setting_nothing_is_noted_and_this_machine_is_all_there_is():
    with storage.of_worker(None) as publishing:
        publishing.begin(RUN, 0)
        saved(0)
        publishing.complete(RUN, lambda: False)
    folder = run_folder(RUN)
    before = {*home().rglob("*")}
    storage.changed(folder)
    storage.deleted(folder)
    storage.copy_start(RUN, "step-000000", "fork")
    storage.publish_now(folder)
    storage.trim(None)
    assert storage.fetch(folder) == folder and storage.has(folder) and not storage.has(run_folder("other"))
    assert storage.names(RUN, CHECKPOINTS) == [] and checkpoint.newest_step(folder) == 0
    assert storage.each(str, (1, 2)) == ["1", "2"] and storage.lacks() == ""
    assert {*home().rglob("*")} == before
    with pytest.raises(LabError, match="no object store to publish to: set RL_LAB_ARTIFACTS to s3://BUCKET/FOLDER"):
        storage.publish(None, (), False)


@every("name", QUESTIONS)
def test_an_object_store_answers_every_question_in_the_same_form(name):
    answer = resolve_name(f"{storage.PACKAGE}.{QUESTIONS[name]}")
    asked, answered = (inspect.signature(each).parameters.values() for each in (vars(storage)[name], answer))
    assert [(each.kind, each.default) for each in answered] == [(each.kind, each.default) for each in asked]


def test_every_function_without_an_effect_is_answered_by_an_object_store():
    own = {"chosen", "shown", "in_home"}
    functions = {name for name, each in vars(storage).items() if inspect.isfunction(each) and name[0] != "_"
                 and each.__module__ == storage.__name__}
    assert functions == own | {*QUESTIONS} and len(QUESTIONS) > 10


def test_the_setting_decides_at_each_question(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{tmp_path}/no/such")
    with pytest.raises(LabError, match="There is no folder"):
        storage.fetch(run_folder(RUN) / CHECKPOINTS / "step-000000")
    monkeypatch.setenv("RL_LAB_ARTIFACTS", " ")
    assert not storage.fetch(run_folder(RUN) / CHECKPOINTS / "step-000000").exists()


@pytest.mark.parametrize("before", [{"RL_LAB_ARTIFACTS": "file:///x", "RL_LAB_READ_ONLY": "1"}, {}])
def test_a_lab_of_its_own_shares_nothing_and_leaves_the_settings_as_they_were(tmp_path, monkeypatch, before):
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    settings = dict(os.environ)
    with pytest.raises(KeyError), storage.in_home(tmp_path):
        assert home() == tmp_path and not storage.chosen() and not os.environ.keys() & before.keys()
        raise KeyError
    assert dict(os.environ) == settings
