"""What the lab asks of an object store: nothing happens without one, and one that is set answers every question."""

from __future__ import annotations

import inspect
import os

import pytest

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts.shared import Shared
from labcore.runs.files.paths import CHECKPOINTS, home, run_folder
from labcore.runs.files.storage import Storage, in_home, storage
from tests.runs.files.artifacts.tools import RUN, saved

QUESTIONS = {name: question for name, question in vars(Storage).items() if not name.startswith("_")}


def test_without_a_setting_nothing_is_noted_and_this_machine_is_all_there_is():
    with storage().of_worker(None) as publishing:
        publishing.begin(RUN, 0)
        saved(0)
        publishing.complete(RUN, lambda: False)
    folder = run_folder(RUN)
    before = {*home().rglob("*")}
    storage().changed(folder)
    storage().deleted(folder)
    storage().copy_start(RUN, "step-000000", "fork")
    storage().publish_now(folder)
    storage().trim(None)
    assert storage().fetch(folder) == folder and storage().has(folder) and not storage().has(run_folder("other"))
    assert storage().names(folder / CHECKPOINTS) == [] and checkpoint.newest_step(folder) == 0
    assert storage().each(str, (1, 2)) == ["1", "2"] and not storage().shared and storage().lacks() == ""
    assert {*home().rglob("*")} == before
    with pytest.raises(LabError, match="no object store to publish to: set RL_LAB_ARTIFACTS to s3://BUCKET/FOLDER"):
        storage().publish(None, (), False)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_object_store_answers_every_question_itself(name):
    """One that only `Storage` answers would be answered with nothing, and no machine would see another one's file."""
    own = vars(Shared).get(name)
    assert own is not None
    if callable(own):
        assert inspect.signature(own) == inspect.signature(QUESTIONS[name])


def test_the_setting_decides_at_each_question(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{tmp_path}")
    assert storage().shared and ("RL_LAB_ARTIFACTS", f"file://{tmp_path}") == storage().settings()[0][:2]
    monkeypatch.setenv("RL_LAB_ARTIFACTS", " ")
    assert not storage().shared and storage().settings()[0][:2] == ("RL_LAB_ARTIFACTS", "not set")


@pytest.mark.parametrize("before", [{"RL_LAB_ARTIFACTS": "file:///x", "RL_LAB_READ_ONLY": "1"}, {}])
def test_a_lab_of_its_own_shares_nothing_and_leaves_the_settings_as_they_were(tmp_path, monkeypatch, before):
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    settings = dict(os.environ)
    with pytest.raises(KeyError), in_home(tmp_path):
        assert home() == tmp_path and not storage().shared and not os.environ.keys() & before.keys()
        raise KeyError
    assert dict(os.environ) == settings
