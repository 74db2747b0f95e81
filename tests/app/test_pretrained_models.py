"""Pretrained models on the page: those in the cache, a folder, and one of the hub with its download."""

import json

import pytest

from app.training.pretrained_models import HERE, HUB, OTHER
from labcore.catalog.llm.models import HUB_MODELS
from labcore.runs import jobs
from labcore.runs.files import hub_models
from labcore.runs.files.hub_models import Cached
from tests.app.asking import Answering
from tests.app.seeding import ran
from tests.words import says

FIRST = next(iter(HUB_MODELS))
LIKE = "Other/Model"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The models in the hub's cache: name -> folder."""
    there = {}
    monkeypatch.setattr(hub_models, "cached", lambda: [Cached(name, path, 3 * 10**6) for name, path in there.items()])
    monkeypatch.setattr(hub_models, "here", there.get)
    return there


@pytest.fixture
def opened(page):
    """opened(where) is the page with the choice open."""
    def at(where=HERE, **query):
        test = page("llm", **query)
        test.session_state["pretrained_models"] = True
        test.session_state["where:new-llm"] = where
        return ran(test)
    return at


def model(test) -> str:
    return test.session_state["draft:new-llm"]["model"]


def named(elements, label: str):
    return next(each for each in elements if each.label.startswith(label))


def words(test) -> str:
    return " ".join(each.value for each in (*test.caption, *test.markdown, *test.html, *test.error))


def test_a_model_in_the_cache_is_chosen(opened, cache, tmp_path):
    assert says(words(opened()), "No model of the hub", "on this machine")
    cache[LIKE] = tmp_path
    test = opened()
    assert named(test.selectbox, "Downloaded").options == ["Other/Model · 3.0 MB"]
    named(test.selectbox, "Downloaded").set_value(LIKE)
    ran(test)
    assert model(test) == LIKE and f"Chosen: {LIKE}" in words(test)
    assert test.query_params["model"] in (LIKE, [LIKE])


def test_a_folder_is_chosen_once_it_is_a_model(opened, cache, tmp_path):
    test = opened()
    named(test.text_input, "Or a folder").set_value("/no/such")
    assert "There is no folder '/no/such' on this machine" in words(ran(test))
    named(test.text_input, "Or a folder").set_value(str(tmp_path))
    assert "is not a complete model: it needs config.json, a tokenizer" in words(ran(test))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    named(ran(test).button, "Use this folder").click()
    assert model(ran(test)) == str(tmp_path.resolve())


def test_a_model_of_the_hub_is_downloaded_and_then_chosen(opened, cache, lab, tmp_path):
    asked = Answering(lab.launcher, lambda spec: None)
    test = opened(HUB)
    assert named(test.radio, "Small models").options[0] == "SmolLM2-135M-Instruct · 270 MB"
    named(test.button, "Download · 270 MB").click()
    ran(test)
    spec = {"job": "download", "name": FIRST}
    assert spec in asked.asked and model(test) == "tiny"
    jobs.say(jobs.job_id(spec), "downloading it: 12 of 270 MB")
    ran(test)
    assert "downloading it: 12 of 270 MB" in words(test)
    test.session_state["pretrained_models"] = False
    assert "downloading it: 12 of 270 MB" in words(ran(test)), "beside the closed choice too"
    test.session_state["pretrained_models"] = True
    ran(test)
    named([each for each in test.button if each.key.startswith("stop:download")], "Stop").click()
    ran(test)
    assert asked.cancelled == [jobs.job_id(spec)]
    cache[FIRST] = tmp_path
    jobs._keep(jobs.job_id(spec), {"folder": str(tmp_path)})
    ran(test)
    assert model(test) == FIRST and f"Chosen: {FIRST}" in words(test)
    assert named(test.button, "Use this model").disabled


def test_what_fails_is_said_and_can_be_tried_again(opened, cache, lab):
    replies = ["The model is gated: accept its terms."]
    asked = Answering(lab.launcher, lambda spec: replies.pop() if spec["job"] == "download" and replies else None)
    test = opened(HUB)
    named(test.radio, "Small models").set_value("google/gemma-3-270m-it")
    ran(test)
    assert says(words(test), "Gated", "accept its terms", "(https://huggingface.co/google/gemma-3-270m-it)")
    named(test.button, "Download").click()
    assert says(words(ran(test)), "gated", "accept its terms") and model(test) == "tiny"
    named(test.button, "Download").click()
    ran(test)
    assert [spec["job"] for spec in asked.asked].count("download") > 1
    assert "The model is gated" not in words(test)


@pytest.mark.long
def test_any_other_model_is_named_by_its_id(opened, cache, lab):
    asked = Answering(lab.launcher, lambda spec: None)
    test = opened(HUB)
    named(test.radio, "Small models").set_value(OTHER)
    ran(test)
    assert not [each for each in test.button if each.label == "Download"]
    named(test.text_input, "Its id").set_value("mine")
    assert "Write the id as it is on the hub" in words(ran(test))
    named(test.text_input, "Its id").set_value("org/some-model")
    named(ran(test).button, "Download").click()
    ran(test)
    assert {"job": "download", "name": "org/some-model"} in asked.asked


def test_the_cache_is_not_looked_at_while_the_choice_is_closed(page, monkeypatch):
    monkeypatch.setattr(hub_models, "cached", lambda: 1 / 0)
    page("llm")
    page("exact")


def test_a_comparison_offers_the_same_models(page, cache, tmp_path):
    cache[LIKE] = tmp_path
    test = page("compare")
    test.session_state["pretrained_models"] = True
    named(ran(test).selectbox, "Downloaded").set_value(LIKE)
    assert f"Chosen: {LIKE}" in words(ran(test)) and test.session_state["draft:launch-llm"]["model"] == LIKE
