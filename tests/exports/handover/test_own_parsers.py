"""The scripts for verl and OpenRLHF before these tools' own eyes: what they ask of their settings before they train.

OpenRLHF's parser and the checks that follow it are run as its command runs them, and verl's settings are composed by
Hydra from verl's files and made into its configuration classes. Neither needs a GPU; where a tool is not installed the
test is skipped, and `test_shell.py` compares with what that version published (`tests/golden`).
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.exports.handover import openrlhf, verl
from tests.exports.handover.conftest import fitting, plan
from tests.exports.handover.test_shell import started

ONE_TASK = dict(reversed(fitting()))  # a task for each algorithm


def folder_of(package: str, wanted: str) -> Path:
    """Where a package of that version lies. It is not imported, since that may import what is not there."""
    try:
        found = version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    if found != wanted:
        pytest.skip(f"the script is for {package} {wanted}")
    spec = find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent


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


@pytest.mark.parametrize(("algorithm", "task"), ONE_TASK.items())
def test_openrlhf_takes_its_options(algorithm, task, files, checkpoint, tmp_path, monkeypatch):
    folder = folder_of("openrlhf", openrlhf.VERSION)
    each = plan(algorithm, task, files)
    words = started(learnable(openrlhf.script(each)), tmp_path, str(checkpoint), here=True)
    options = words[next(place for place, word in enumerate(words) if word.startswith("--") and "." in word):]
    args = accepted(folder, openrlhf.COMMANDS[each.loop], options, monkeypatch)
    rate = args.actor.adam.lr if each.loop == "online" else args.adam.lr
    assert rate == each["learning_rate"]


def test_openrlhf_would_refuse_an_option_that_it_has_not(monkeypatch):
    folder = folder_of("openrlhf", openrlhf.VERSION)
    with pytest.raises(SystemExit):
        accepted(folder, "train_sft", ["--data.nothing", "1"], monkeypatch)


# ---- verl ----------------------------------------------------------------------------------------------------------

CLASSES = {"ppo_trainer": ("algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.rollout"),
           "sft_trainer_engine": ("optim", "engine")}


@pytest.mark.parametrize(("algorithm", "task"), [
    (algorithm, task) for algorithm, task in ONE_TASK.items() if ALGORITHMS[algorithm].loop in ("online", "sft")])
def test_verl_takes_its_settings(algorithm, task, files, checkpoint, tmp_path):
    folder = folder_of("verl", verl.VERSION)
    hydra = pytest.importorskip("hydra")
    each = plan(algorithm, task, files)
    name = "sft_trainer_engine" if each.loop == "sft" else "ppo_trainer"
    words = started(verl.script(each), tmp_path, str(checkpoint), here=True)
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    with hydra.initialize_config_dir(str(folder / "trainer" / "config"), version_base=None):
        found = hydra.compose(name, overrides=overrides)
    critic = ("critic",) * (found.get("algorithm", {}).get("adv_estimator") == "gae")
    made = classes(found, (*CLASSES[name], *critic))
    if each.loop == "online":
        assert made["actor_rollout_ref.actor"].optim.lr == each["learning_rate"]
        assert made["algorithm"].adv_estimator == verl.settings(each)["algorithm.adv_estimator"]


def classes(found: Any, parts: tuple[str, ...]) -> dict[str, Any]:
    """verl's own configuration classes of these parts, with what they check when they are made."""
    try:
        config = import_module("verl.utils.config")
    except ImportError as error:
        pytest.skip(f"verl's own classes need {error.name}")
    from omegaconf import OmegaConf

    return {part: config.omega_conf_to_dataclass(OmegaConf.select(found, part)) for part in parts}
