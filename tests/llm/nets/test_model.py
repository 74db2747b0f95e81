"""Models are built the same from the same seed, travel as Hugging Face folders, and faults are told in words."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig, BertForMaskedLM, LlamaModel, T5Config
from transformers import T5ForConditionalGeneration as T5

from labcore.catalog.llm.models import MODELS, ModelSize
from labcore.errors import LabError
from labcore.llm.nets import folder as folders
from labcore.llm.nets.model import build, load, save
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.runs.files import hub_models

TOKENIZER = character_tokenizer()
TINY = MODELS["tiny"]


@pytest.fixture
def saved(tmp_path):
    save(build(TINY, TOKENIZER, seed=0), TOKENIZER, tmp_path)
    return tmp_path


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("size", MODELS.values(), ids=list(MODELS))
def test_the_sizes_are_what_the_catalog_says(size: ModelSize):
    model = build(size, TOKENIZER, seed=0)
    assert model.num_parameters() / 1e6 == pytest.approx(float(size.parameters.removesuffix(" M")), abs=0.06)
    assert model.config.max_position_embeddings == size.context
    assert model.dtype == torch.float32 and model.device.type == "cpu"
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 1)


def test_weights_depend_on_the_seed_only():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = weights(build(TINY, TOKENIZER, seed=1))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(weights(build(TINY, TOKENIZER, seed=1)), first)
    assert not torch.equal(weights(build(TINY, TOKENIZER, seed=2)), first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_folder_loads_without_our_code(tmp_path, dtype, capfd):
    model = build(TINY, TOKENIZER, seed=0, dtype=dtype)
    save(model, TOKENIZER, tmp_path)
    again, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert again.dtype == dtype and torch.equal(weights(again), weights(model))
    ids = tokenizer("dbca=", return_tensors="pt")["input_ids"]
    assert torch.equal(again(ids).logits, model(ids).logits)
    written = again.generate(ids, max_new_tokens=3)
    assert written.shape[0] == 1 and again.generation_config.eos_token_id == 1
    ours, ours_tokenizer = load(tmp_path, dtype=dtype)
    assert torch.equal(weights(ours), weights(model)) and ours_tokenizer.get_vocab() == tokenizer.get_vocab()
    assert not list(tmp_path.glob("*.bin")) and (tmp_path / "model.safetensors").is_file()
    assert capfd.readouterr() == ("", "")


def test_a_loaded_model_can_be_saved_again(saved, tmp_path_factory):
    # Greedy decoding with a temperature: many folders on the hub have it, and transformers refuses to write it.
    settings = {"do_sample": False, "temperature": 0.6, "eos_token_id": [1, 2]}
    (saved / "generation_config.json").write_text(json.dumps(settings))
    model, tokenizer = load(saved)
    second = tmp_path_factory.mktemp("second")
    save(model, tokenizer, second)
    assert json.loads((second / "generation_config.json").read_text())["eos_token_id"] == [1, 2]
    assert torch.equal(weights(load(second)[0]), weights(model))


def test_a_model_loaded_in_another_dtype(saved):
    assert load(saved, dtype=torch.bfloat16)[0].dtype == torch.bfloat16
    assert load(str(saved))[0].dtype == torch.float32


def refused(path, words):
    with pytest.raises(LabError, match=words) as caught:
        load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def remove(folder, *patterns):
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink()


@pytest.mark.parametrize("name", ["./none", "/none/at/all", "gpt9", "~/none", "~nobody-here/none", "a\\b"])
def test_a_folder_that_is_not_there(name):
    refused(name, "There is no model")


def test_a_name_that_is_no_id():
    refused("no such/thing", "The hub has no model 'no such/thing'")


def test_a_file_is_no_model(saved):
    refused(saved / "config.json", "is a file, not a model")


def test_a_model_of_the_hub(saved, monkeypatch):
    def fetch(name, report, weights, check):
        check(saved)
        return saved

    monkeypatch.setattr(hub_models, "fetch", fetch)
    assert load("some/model")[0].config.model_type == "llama"
    assert folders.download({"name": "some/model"}) == {"folder": str(saved)}
    remove(saved, "tokenizer*")
    with pytest.raises(LabError, match="has no tokenizer"):
        folders.download({"name": "some/model"})


@pytest.mark.parametrize("name", ["tiny", "/a/b", "a/b/c", "", "a"])
def test_what_cannot_be_downloaded_is_said(name):
    with pytest.raises(LabError, match="is no model of the hub: write organisation/name"):
        folders.download({"name": name})


def test_no_config(saved):
    remove(saved, "config.json")
    refused(saved, "has no config.json")


@pytest.mark.parametrize(("text", "words"), [("{", "is not JSON"), ("[]", "is not a model's configuration")])
def test_a_broken_config(saved, text, words):
    (saved / "config.json").write_text(text)
    refused(saved, words)


def test_no_tokenizer(saved):
    remove(saved, "tokenizer*")
    refused(saved, "has no tokenizer")


def test_no_weights(saved):
    remove(saved, "*.safetensors")
    refused(saved, "has no weights")


def test_pickle_weights_only(saved):
    remove(saved, "*.safetensors")
    (saved / "pytorch_model.bin").write_bytes(b"never opened")
    refused(saved, r"has only pickle weights \(pytorch_model.bin\)")


def test_cut_off_weights(saved):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    refused(saved, "cannot be loaded")


def test_memory_that_is_out_is_not_the_folders_fault(saved, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(RuntimeError, match="allocate"):
        load(saved)


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_weights_of_another_shape(saved):
    edit(saved, hidden_size=128)
    refused(saved, "cannot be loaded")


def test_weights_that_lack_tensors(saved):
    edit(saved, num_hidden_layers=3)
    refused(saved, "lack .* of the model's tensors, such as model.layers.2")


def test_a_vocabulary_smaller_than_its_tokenizer(saved):
    character_tokenizer("éèê").save_pretrained(saved)
    refused(saved, "knows 99 tokens, but its tokenizer has ids up to 101")


def test_a_tokenizer_without_an_end(saved):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(saved)
    refused(saved, "has no end-of-text token")


def test_a_model_with_its_own_code_is_never_run(saved):
    edit(saved, model_type="mystery", auto_map={"AutoModelForCausalLM": "code.Mystery"})
    (saved / "code.py").write_text("raise SystemExit('ran the model folder’s code')")
    refused(saved, "needs code of its own")


def test_models_that_are_not_causal(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    size = {"vocab_size": 99, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertForMaskedLM(BertConfig(hidden_size=8, intermediate_size=8, **size)).save_pretrained(tmp_path)
    refused(tmp_path, "BertForMaskedLM.* is not a causal language model")
    T5(T5Config(vocab_size=99, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)).save_pretrained(tmp_path)
    refused(tmp_path, "T5ForConditionalGeneration.* is not a causal language model")


def test_a_body_without_its_head(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    config = build(TINY, TOKENIZER, seed=0).config
    config.tie_word_embeddings = False
    LlamaModel(config).save_pretrained(tmp_path)
    refused(tmp_path, "LlamaModel.* is not a causal language model")
