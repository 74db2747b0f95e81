"""`models` and `download` as a user meets them."""

import json

import pytest

from labcore.catalog.llm.models import HUB_MODELS, MODELS
from labcore.cli.main import main
from labcore.llm.nets.model import build, load, save
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.runs.files import hub_models
from labcore.runs.spec import activity
from tests.cli.test_main import refused
from tests.runs.files.hub import serving, turn_to
from tests.words import says


@pytest.fixture
def hub(tmp_path, monkeypatch):
    folder = tmp_path / "made"
    tokenizer = character_tokenizer()
    save(build(MODELS["tiny"], tokenizer, seed=0), tokenizer, folder)
    monkeypatch.setattr(hub_models, "LARGE", 1000)
    with serving({"org/tiny": {"main": {path.name: path.read_bytes() for path in folder.iterdir()}}}) as served:
        turn_to(served, tmp_path / "cache", monkeypatch)
        yield served


def test_a_model_is_downloaded_and_listed(hub, capsys):
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "On this machine, from the hub: none yet" in out and "tiny (0.1 M parameters)" in out
    assert all(row.key in out and row.licence in out and row.size in out for row in HUB_MODELS.values())
    assert main(["download", "org/tiny"]) == 0
    assert "start a run with --model org/tiny" in capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["on_this_machine"]] == ["org/tiny"]


def test_a_model_that_is_not_here_is_downloaded_where_it_is_loaded(hub):
    heard = []
    with activity.listening(lambda words, done, total: heard.append(words)):
        model, _ = load("org/tiny")
    assert model.config.hidden_size == MODELS["tiny"].hidden
    assert [*dict.fromkeys(heard)] == ["downloading org/tiny: {} of {} MB", "loading the model"]


def test_the_line_says_how_far_it_is(hub, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["download", "org/tiny"]) == 0
    assert "downloading org/tiny: 0 of 1 MB" in capsys.readouterr().err


def test_what_cannot_be_downloaded_is_one_sentence(hub, capsys):
    assert says(refused(capsys, "download", "org/none"), "no model 'org/none'", "open to you")
    assert "'tiny' is no model of the hub: write organisation/name." in refused(capsys, "download", "tiny")
