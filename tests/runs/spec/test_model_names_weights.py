"""Which models are pretrained, without loading one: by name, by shape, through adapters and runs."""

import json
import os

import pytest

from labcore.runs.files import bases
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.model_names import kind_of, pretrained
from labcore.runs.spec.run_spec import RunSpec, base_spec, make

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 176}
REAL = {**TINY, "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "intermediate_size": 1536}


def folder(path, config=None, **files) -> str:
    path.mkdir(parents=True)
    for name, content in {**({"config.json": config} if config else {}), **files}.items():
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def adapter_on(path, base: str) -> str:
    return folder(path, **{"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": base}})


@pytest.mark.parametrize("model, is_so", [("tiny", False), ("medium", False), ("table", False), ("org/model", True),
                                          ("/no/such/folder", True), ("", True)])
def test_by_name(model, is_so):
    assert pretrained(model) == is_so
    assert kind_of(model, {"lora_rank": 0}) == ("full" if is_so else "")
    assert kind_of(model, {"lora_rank": 8}) == ("LoRA" if is_so else "")


def test_by_the_shape_of_a_folder(tmp_path):
    own, real = folder(tmp_path / "own", TINY), folder(tmp_path / "real", REAL)
    assert not pretrained(own) and pretrained(real)
    assert not pretrained(adapter_on(tmp_path / "on-own", own)) and pretrained(adapter_on(tmp_path / "on-real", real))
    assert pretrained(adapter_on(tmp_path / "on-hub", "org/model"))


@pytest.mark.parametrize("content", ["{", "[1]", "null", '{"hidden_size": [64]}'])
def test_what_cannot_be_read_counts_as_pretrained(tmp_path, content):
    assert pretrained(folder(tmp_path / "damaged", content))


def test_a_configuration_that_changes_is_read_again(tmp_path):
    path = folder(tmp_path / "model", TINY)
    assert not pretrained(path)
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(REAL))
    os.utime(config, ns=(1, 1))
    assert pretrained(path)


def test_the_bases_that_come_with_the_lab_are_its_own():
    spec = make(algorithm_key="grpo", task_key="sort")
    found = bases.take(base_spec(spec).hash())
    assert not pretrained(str(found / "model")) and not pretrained(str(home() / "base" / "0123456789ab" / "model"))


def test_a_run_that_another_machine_has_is_what_it_began_with(tmp_path):
    for model, is_so in (("tiny", False), ("org/model", True)):
        spec = make(algorithm_key="grpo", task_key="sort", model=model)
        run = run_folder(f"grpo-sort-{'ab'[is_so]}1")
        run.mkdir(parents=True)
        (run / "spec.json").write_text(spec.to_json())
        assert pretrained(str(run / "checkpoints" / "step-000004" / "policy")) == is_so


def test_a_run_written_before_keeps_its_values():
    spec = make(algorithm_key="grpo", task_key="sort", model="org/model", knobs={"learning_rate": 7e-4})
    fields = json.loads(spec.to_json())
    for key in ("schedule", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"):
        del fields["knobs"][key]
    again = RunSpec.from_json(json.dumps(fields))
    assert again.knobs == {**spec.knobs, "schedule": "constant"} and again.weights == "full"
