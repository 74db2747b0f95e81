"""`study` runs what is missing and says what came of the claim; `studies` lists them with their cost."""

import json
from dataclasses import replace

import pytest

from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Contrast, Measure, Setting
from labcore.analysis.studies.verdict import Need
from labcore.cli import studying
from labcore.cli.main import main
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake

SHORT = replace(STUDIES["samples"], steps=2, settings=[Setting("RLOO", "rloo", {"prompts_per_step": 2})],
                knobs={"sft_steps": 0, "max_new_tokens": 2, "group_size": 2},
                contrasts=[Contrast("reward", {"RLOO": 1.0}, Measure(rows=2), low=-1.0)])


class Here:
    """A launcher that runs everything of its sweep in this process."""

    def __init__(self, store, sweep):
        self.store, self.sweep = store, sweep

    def wake(self):
        while queued := self.store.queued(self.sweep):
            drive(self.store, next(iter(queued)))

    def close(self):
        pass


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    monkeypatch.delenv("RL_LAB_STORE", raising=False)
    monkeypatch.setattr(studying, "Launcher", Here)
    monkeypatch.setattr(studying, "_measured", lambda specs, store: studying.estimate.Estimate(1.0, 0.0, False, ()))


def test_a_study_is_run_once_and_its_verdict_printed(lab, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES, "samples", SHORT)
    assert main(["study", "samples", "--show"]) == 1
    assert "has no result yet" in capsys.readouterr().err
    other = Store().create(fake.grpo(3))  # somebody else's
    assert main(["study", "samples", "--json"]) == 0
    assert Store().run(other).state == "queued"
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "agrees" and found["findings"][0]["seeds"] == 3
    assert 0.0 <= found["findings"][0]["mean"] <= 1.0
    monkeypatch.setattr(studying, "Launcher", None)  # nothing is run again
    assert main(["study", "samples"]) == 0
    said = capsys.readouterr().out
    assert SHORT.claim in said and "verdict  agrees" in said and "* reward: " in said


@pytest.mark.long
def test_the_seeds_that_would_decide_are_added_where_there_are_not_too_many(lab, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES, "samples", SHORT)
    monkeypatch.setattr(studying, "needed_to_decide", lambda study, found: Need(None, ("RLOO",)))
    assert main(["study", "samples", "--enough", "--json"]) == 0
    said = capsys.readouterr()
    assert "no runs are added" in said.err and json.loads(said.out)["findings"][0]["seeds"] == 3
    monkeypatch.setattr(studying, "needed_to_decide", lambda study, found: Need(4, ("RLOO",)))
    assert main(["study", "samples", "--enough", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["seeds"] == 4
    assert sorted(row.spec.seed for row in Store().runs()) == [0, 1, 2, 3]


def test_all_studies_are_listed(lab, capsys):
    assert main(["studies"]) == 0
    said = capsys.readouterr().out
    assert all(key in said and study.claim in said for key, study in STUDIES.items())
    assert said.count(" runs, ") == len(STUDIES) and "of training on" in said
    assert main(["study", "nothing"]) == 1
    assert "There is no study 'nothing'" in capsys.readouterr().err
