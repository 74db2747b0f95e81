"""Hugging Face folders whose files say anything: they load, or are refused in one sentence before anything is built."""

import json
import shutil
import warnings

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.nets import folder as size
from labcore.llm.nets.model import build, load, save
from labcore.llm.nets.tokenizer import character_tokenizer
from tests.runs.files.hub import serving, turn_to

few = settings(max_examples=20, deadline=None, derandomize=True, database=None)
TOKENIZER = character_tokenizer()
NUMBERS = st.sampled_from([0, -1, 1, 2, 7, 2**31, 10**9, 10**400, 0.5, 64.0, True, None, "64", [], [64, 64], {}])
WORDS = st.one_of(st.text(max_size=8), st.sampled_from(["llama", "gpt2", "softmax_table", "\0", "silu", "\ud800"]))
VALUES = st.one_of(NUMBERS, WORDS, st.floats(), st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
                   st.lists(WORDS, max_size=2))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    save(build(MODELS["tiny"], TOKENIZER, seed=0), TOKENIZER, folder)
    return folder


def refused(folder):
    """The sentence with which a folder is refused; empty where it loads. No warning on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            load(folder)
        except LabError as error:
            sentence = str(error)
            assert sentence and "\n" not in sentence and len(sentence) < 800, sentence
            return sentence
    return ""


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def write(folder, name, text):
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)


def changed(fields, changes):
    return json.dumps({key: value for key, value in {**fields, **changes}.items() if value is not ...})


HELL = [({"num_hidden_layers": 10**6}, "would have"), ({"hidden_size": 0}, "has '0' as its hidden_size"),
        ({"num_attention_heads": -4}, "has '-4' as its num_attention_heads"),
        ({"vocab_size": 10**9}, "would have 64 G parameters, which take 256 GB of memory, and this machine has 8 GB"),
        ({"intermediate_size": 10**290}, "would have more than 1,000 E parameters"),
        ({"hidden_size": 64.0}, "has '64.0' as its hidden_size"),
        ({"num_hidden_layers": 5000, "hidden_size": 1, "intermediate_size": 1}, "the lab builds at most 1,000 layers"),
        ({"model_type": "gpt2", "n_embd": 0}, "has '0' as its n_embd"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 10**7}, "would have"),
        ({"model_type": "softmax_table", "architectures": ["SoftmaxTable"], "context": 10**9}, "would have more than"),
        ({"model_type": ["llama"]}, "is not a causal language model"), ({"architectures": 7}, "")]


@pytest.mark.parametrize("changes, words", HELL)
def test_a_model_from_hell_is_counted_and_never_built(folder, monkeypatch, changes, words):
    monkeypatch.setattr(size.psutil, "virtual_memory", lambda: type("Memory", (), {"total": 8 * 10**9}))
    built = []
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: built.append(1) or 1 / 0)
    write(folder, "config.json", changed(json.loads((folder / "config.json").read_text()), changes))
    assert words in refused(folder)
    assert bool(built) == (not words)


def test_nothing_is_fetched_but_the_configuration_of_a_model_that_is_too_large(folder, monkeypatch):
    write(folder, "config.json", changed(json.loads((folder / "config.json").read_text()), {"vocab_size": 10**12}))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with serving({"some/giant": {"main": files}}) as hub:
        turn_to(hub, folder / "cache", monkeypatch)
        assert "The model in some/giant would have 64 T parameters" in refused("some/giant")
        assert {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path} == {"config.json"}


@pytest.mark.parametrize("key", MODELS)
def test_the_count_is_that_of_the_model(key):
    model = build(MODELS[key], TOKENIZER, seed=0)
    config = model.config.to_dict()
    assert size._count(config, size._sizes("here", config)) == pytest.approx(model.num_parameters(), rel=0.01)


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "mistral", "qwen2", "qwen3", "gemma", "phi", "opt"])
def test_the_count_of_other_architectures_is_near_and_never_far_above(kind):
    """Of their usual sizes, without a number written; so that none is refused that would fit."""
    config = CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        config.num_hidden_layers = 2
        there = AutoModelForCausalLM.from_config(config).num_parameters()
    written = {"model_type": kind, "num_hidden_layers": 2, "n_layer": 2,
               "hidden_act": getattr(config, "hidden_act", ""), "tie_word_embeddings": config.tie_word_embeddings}
    assert 0.4 * there < size._count(written, size._sizes("here", written)) < 1.25 * there


@pytest.mark.parametrize("kind, billions", [("zamba", 7.0), ("mamba2", 6.5), ("falcon", 7.0), ("mixtral", 46)])
def test_less_is_counted_where_layers_are_of_another_sort(kind, billions):
    """Of their usual sizes; the published models of these have so many parameters."""
    assert 1e8 < size._count({"model_type": kind}, size._sizes("here", {"model_type": kind})) < billions * 1e9


def test_any_configuration(folder):
    fields = json.loads((folder / "config.json").read_text())

    @settings(few, max_examples=12)
    @given(st.dictionaries(st.sampled_from(sorted(fields)), st.one_of(VALUES, st.just(...)), min_size=1, max_size=2))
    @example({"num_attention_heads": 7})
    @example({"rope_parameters": {"rope_type": "nan", "rope_theta": float("nan")}})
    def one(changes):
        write(folder, "config.json", changed(fields, changes))
        refused(folder)
    one()


def test_any_bytes_as_a_configuration(folder):
    @few
    @given(st.one_of(st.binary(max_size=40), VALUES.map(json.dumps)))
    @example(b"[" * 100_000)
    @example(b"\xef\xbb\xbf{}")
    @example('{"model_type": "llama", "model_type": "gpt2", "n_embd": 4, "n_layer": 1, "n_head": 1, "vocab_size": 9}')
    def one(text):
        write(folder, "config.json", text)
        assert refused(folder)
    one()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_any_tokenizer_and_settings(folder, name):
    fields = json.loads((folder / name).read_text())

    @settings(few, max_examples=8)
    @given(st.one_of(st.binary(max_size=20), st.dictionaries(st.sampled_from(sorted(fields)), st.one_of(
        VALUES, st.just(...)), min_size=1, max_size=2).map(lambda changes: changed(fields, changes))))
    @example(b"[" * 100_000)
    @example(b"\xef\xbb\xbf{}")
    @example(changed(fields, {"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}}))
    @example(changed(fields, {"eos_token": {"content": "\ud800"}, "eos_token_id": [-5]}))
    def one(text):
        write(folder, name, text)
        refused(folder)
    one()
