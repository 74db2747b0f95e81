"""The scripts for verl, OpenRLHF and ms-swift before these tools' own eyes: their checks before they train.

OpenRLHF's parser and the checks that follow it are run as its command runs them, verl's settings are composed by
Hydra from verl's files and made into its configuration classes, and ms-swift's arguments are parsed into its classes.
None needs a GPU; where a tool is not installed the test is skipped, and `test_shell.py` and `test_ms_swift.py` compare
with what that version published (`tests/golden`).
"""

import ast
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.exports.handover import ms_swift, openrlhf, trl, verl
from labcore.exports.handover.plan import Plan
from tests.exports.handover.conftest import ENGINE, fitting, plan, switched
from tests.exports.handover.test_shell import started

ONE_TASK = dict(reversed(fitting()))  # a task for each algorithm
EACH = [*ONE_TASK.items(), fitting()[-1]]  # and one with episodes


def folder_of(package: str, wanted: str) -> Path:
    """Where a package of that version lies. It is not imported, since that may import what is not there."""
    found = version_of(package)
    if not found:
        pytest.skip(f"{package} is not installed")
    if found != wanted:
        pytest.skip(f"the script is for {package} {wanted}")
    spec = find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent


@pytest.mark.parametrize("package, wanted, extras", [
    ("trl", trl.VERSION, {"peft", "quantization", "vllm"}), ("verl", verl.VERSION, {"fsdp", "vllm"}),
    ("openrlhf", openrlhf.VERSION, {"vllm"})])
def test_a_tool_has_the_extras_that_the_scripts_install(package, wanted, extras):
    folder_of(package, wanted)
    assert extras <= set(metadata(package).get_all("Provides-Extra"))


def learnable(script: str) -> str:
    """The script with a reward that an untrained model meets now and then, so that it samples pairs."""
    return script.replace("float(completion == answer)", 'float(completion < "m")')


# ---- OpenRLHF ------------------------------------------------------------------------------------------------------

class Started(Exception):
    """OpenRLHF's command got as far as its training."""


def accepted(folder: Path, command: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What OpenRLHF's command makes of its options before it trains: its own parser, then its own checks."""
    path = folder / "cli" / f"{command}.py"
    tree = ast.parse(path.read_text())
    [main] = [node for node in tree.body if isinstance(node, ast.If)]
    simple = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))
              and ast.unparse(node) in ("import argparse", "import os", "import sys", "from datetime import datetime")]

    def train(args: Any) -> None:
        raise Started(args)

    monkeypatch.setattr(sys, "argv", [f"{command}.py", *words])
    with pytest.raises(Started) as found:
        exec(compile(ast.Module([*simple, *main.body], []), str(path), "exec"), {"train": train})
    return found.value.args[0]


def arguments(each: Plan, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What OpenRLHF makes of the options of a plan's script."""
    folder = folder_of("openrlhf", openrlhf.VERSION)
    words = started(learnable(openrlhf.script(each)), tmp_path, str(checkpoint), here=True)
    options = words[next(place for place, word in enumerate(words) if word.startswith("--") and "." in word):]
    return accepted(folder, openrlhf.COMMANDS[each.loop], options, monkeypatch)


@pytest.mark.parametrize(("algorithm", "task"), EACH)
def test_openrlhf_takes_its_options(algorithm, task, files, checkpoint, tmp_path, monkeypatch):
    each = plan(algorithm, task, files)
    args = arguments(each, tmp_path, checkpoint, monkeypatch)
    rate = args.actor.adam.lr if each.loop == "online" else args.adam.lr
    assert rate == each["learning_rate"]
    assert args.train.agent_func_path == ("task.py" if task == "guess" else None) or each.loop != "online"


@pytest.mark.parametrize("algorithm", ["ppo", "dpo", "reward_model", "sft"])
def test_openrlhf_takes_the_options_of_the_engine(algorithm, files, checkpoint, tmp_path, monkeypatch):
    each = switched(plan(algorithm, ONE_TASK[algorithm], files), **ENGINE)
    args = arguments(each, tmp_path, checkpoint, monkeypatch)
    learner = args.actor if each.loop == "online" else args.model
    assert learner.gradient_checkpointing_enable and args.ds.deepcompile
    assert (args.ds.param_dtype, args.ds.lora.rank, args.ds.lora.alpha) == ("bf16", 8, 16)
    if each.loop == "online":
        found = args.algo.advantage
        assert (found.is_correction_level, found.is_correction_mode) == ("token", "clip")
        assert found.is_correction_threshold == [0.0, 2.0], "truncated from above only"


def test_openrlhf_would_refuse_an_option_that_it_has_not(monkeypatch):
    folder = folder_of("openrlhf", openrlhf.VERSION)
    with pytest.raises(SystemExit):
        accepted(folder, "train_sft", ["--data.nothing", "1"], monkeypatch)


# ---- verl ----------------------------------------------------------------------------------------------------------

CLASSES = {"ppo_trainer": ("algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.rollout",
                           "actor_rollout_ref.model"),
           "sft_trainer_engine": ("optim", "engine", "model")}


@pytest.mark.parametrize(("algorithm", "task"), [
    (algorithm, task) for algorithm, task in EACH if ALGORITHMS[algorithm].loop in ("online", "sft")])
def test_verl_takes_its_settings(algorithm, task, files, checkpoint, tmp_path):
    each = plan(algorithm, task, files)
    made = configured(each, tmp_path, checkpoint)
    if each.loop == "online":
        assert made["actor_rollout_ref.actor"].optim.lr == each["learning_rate"]
        assert made["algorithm"].adv_estimator == verl.settings(each)["algorithm.adv_estimator"]
        loop = made["actor_rollout_ref.rollout"].agent.default_agent_loop
        assert loop == ("episodes" if task == "guess" else "single_turn_agent")


def test_verl_takes_the_settings_of_the_engine(checkpoint, tmp_path):
    made = configured(switched(plan("ppo"), **ENGINE), tmp_path, checkpoint)
    actor, critic = made["actor_rollout_ref.actor"], made["critic"]
    for model in (made["actor_rollout_ref.model"], critic.model):
        assert (model.enable_gradient_checkpointing, model.lora_rank, model.lora_alpha) == (True, 8, 16)
    assert actor.engine.use_torch_compile and made["actor_rollout_ref.rollout"].name == "vllm"
    correction = made["algorithm"].rollout_correction
    assert (correction["rollout_is"], correction["rollout_is_threshold"]) == ("token", 2.0)
    assert {made_by(actor.optim), made_by(critic.optim)} == {"AdamW8bit"}


def test_verls_sft_takes_the_settings_of_the_engine(checkpoint, tmp_path):
    made = configured(switched(plan("sft"), **ENGINE), tmp_path, checkpoint)
    model = made["model"]
    assert (model.enable_gradient_checkpointing, model.lora_rank, model.lora_alpha) == (True, 8, 16)
    assert made["engine"].use_torch_compile and made_by(made["optim"]) == "AdamW8bit"


def test_verl_compiles_nothing_where_the_run_compiled_nothing(checkpoint, tmp_path):
    assert not configured(plan("grpo"), tmp_path, checkpoint)["actor_rollout_ref.actor"].engine.use_torch_compile


def made_by(config: Any) -> str:
    """The optimizer that verl makes of its configuration."""
    pytest.importorskip("bitsandbytes")
    weights = [torch.nn.Parameter(torch.zeros(2))]
    return type(import_module("verl.workers.config").build_optimizer(weights, config)).__name__


def configured(each: Plan, tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    """What verl makes of the settings of a plan's script: Hydra composes them, verl's classes check them."""
    folder = folder_of("verl", verl.VERSION)
    hydra = pytest.importorskip("hydra")
    name = "sft_trainer_engine" if each.loop == "sft" else "ppo_trainer"
    words = started(verl.script(each), tmp_path, str(checkpoint), here=True)
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    with hydra.initialize_config_dir(str(folder / "trainer" / "config"), version_base=None):
        found = hydra.compose(name, overrides=overrides)
    critic = ("critic",) * (found.get("algorithm", {}).get("adv_estimator") == "gae")
    return classes(found, (*CLASSES[name], *critic))


def classes(found: Any, parts: tuple[str, ...]) -> dict[str, Any]:
    """verl's own configuration classes of these parts, with what they check when they are made."""
    try:
        config = import_module("verl.utils.config")
    except ImportError as error:
        pytest.skip(f"verl's own classes need {error.name}")
    from omegaconf import OmegaConf

    return {part: config.omega_conf_to_dataclass(OmegaConf.select(found, part)) for part in parts}


# ---- ms-swift ------------------------------------------------------------------------------------------------------

def test_ms_swift_takes_its_arguments(files, checkpoint, tmp_path, monkeypatch):
    """All algorithms in one test, because its first import takes seconds."""
    if version_of("ms-swift") != ms_swift.VERSION:
        pytest.skip(f"ms-swift {ms_swift.VERSION} is not installed: see requirements-swift.txt")
    for algorithm, task in EACH:
        plain = switched(plan(algorithm, task, files, steps=2), pair_prompts=2, letters=2)
        for name, each in {"plain": plain, "engine": switched(plain, **ENGINE)}.items():
            if not ms_swift.kind(each):
                continue
            folder = tmp_path / f"{algorithm}-{task}-{name}"
            parsed = swift_arguments(each, tmp_path, folder, checkpoint, monkeypatch)
            assert parsed.learning_rate == each["learning_rate"] and parsed.gradient_accumulation_steps == 1
            assert parsed.template_meta.template_type == "as_written" and not parsed.fp16
            assert parsed.bf16 == (name == "engine")
            for key, value in ms_swift.settings(each).items():
                if "$" not in str(value) and key not in CHANGED:
                    assert listed(getattr(parsed, key)) == listed(value), (algorithm, name, key)


def swift_arguments(each: Plan, files: Path, folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Parse the arguments of a plan's script by ms-swift's own classes, in a new `folder` with the files."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    for file in filter(Path.is_file, files.iterdir()):
        (folder / file.name).write_bytes(file.read_bytes())
    words = started(learnable(ms_swift.script(each)), folder, str(checkpoint), here=True)
    import_module("swift.template").TEMPLATE_MAPPING.pop("as_written", None)  # of the script before
    import_module("swift.model").MODEL_MAPPING.pop("any_model", None)
    classes = import_module("swift.arguments")
    parsed, left = import_module("swift.utils").parse_args(
        classes.SftArguments if words[1] == "sft" else classes.RLHFArguments, [*words[2:], "--use_cpu", "true"])
    assert not left
    return parsed


CHANGED = ("external_plugins", "output_dir", "torch_dtype", "report_to", "reward_funcs", "lr_scheduler_type", "optim",
           "save_steps")  # ms-swift makes paths, classes or lists of them


def listed(value: Any) -> list[Any]:
    return [*value] if isinstance(value, list | tuple) else [value]


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
