"""Makes `trl_ids.json`: the ids that TRL's own trainers make of rows of every layout, for tokenizers of every kind.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`):

    python -m tests.golden.trl_ids                                        all tokenizers that are built on the spot
    python -m tests.golden.trl_ids FOLDER tests/real/trl_ids_smollm2.json      that of a model's folder

Nothing of TRL is written anew here: `_prepare_dataset` and `_tokenize_prompts` of its trainers are called without a
model. A row that TRL refuses has its reason in place of ids.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.llm.tokenizers import TOKENIZERS, TRAINING

SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 and 3?"}
FIVE, FOUR = {"role": "assistant", "content": "5"}, {"role": "assistant", "content": "4, is it?"}
SEVERAL = [ASKED, FIVE, {"role": "user", "content": "and 6?"}]
ELEVEN, TEN = {"role": "assistant", "content": "11. Yes"}, {"role": "assistant", "content": "10"}
THOUGHT = {"role": "assistant", "content": "<think>\n5 and 6.\n</think>\n\n11"}
THIRD = {"role": "user", "content": "Hello"}
# Kinds of rows by the trainer that encodes them; those named "text" are plain.
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "prompt": {"text": {"prompt": "What is 2"}, "one turn": {"prompt": [ASKED]}, "several": {"prompt": SEVERAL},
               "system": {"prompt": [SYSTEM, *SEVERAL]}},
    "completion": {"text": {"prompt": "What is 2 and 3?", "completion": " 5"},
                   "text apart": {"prompt": "What is 2 and 3? ", "completion": "5\n"},
                   "one turn": {"prompt": [ASKED], "completion": [FIVE]},
                   "several": {"prompt": SEVERAL, "completion": [ELEVEN]},
                   "thought": {"prompt": SEVERAL, "completion": [THOUGHT]},
                   "system": {"prompt": [SYSTEM, ASKED], "completion": [FIVE]}},
    "messages": {"one answer": {"messages": [ASKED, FIVE]}, "several": {"messages": [*SEVERAL, ELEVEN]},
                 "system": {"messages": [SYSTEM, *SEVERAL, ELEVEN, THIRD, FIVE]}},
    "pair": {"text": {"prompt": "What is 2 and 3?", "chosen": " 5", "rejected": " 4, is it?"},
             "text in both": {"chosen": "What is 2 and 3? 5", "rejected": "What is 2 and 3? No"},
             "one turn": {"prompt": [ASKED], "chosen": [FIVE], "rejected": [FOUR]},
             "several": {"prompt": SEVERAL, "chosen": [ELEVEN], "rejected": [TEN]},
             "in both": {"chosen": [*SEVERAL, ELEVEN], "rejected": [*SEVERAL, TEN]},
             "system": {"prompt": [SYSTEM, ASKED], "chosen": [FIVE], "rejected": [FOUR]}},
    "single": {"text": {"prompt": "What is 2 and 3?", "completion": " 5", "label": True},
               "one turn": {"prompt": [ASKED], "completion": [FIVE], "label": False},
               "several": {"prompt": SEVERAL, "completion": [TEN], "label": True}}}


def main() -> None:
    """Write the file."""
    import torch
    import transformers
    import trl
    from transformers import AutoTokenizer

    folder, target = ([*map(Path, sys.argv[1:3])] if sys.argv[1:] else [None, Path(__file__).with_name("trl_ids.json")])
    tokenizers = {name: make() for name, make in TOKENIZERS.items()} if folder is None else {
        "own": AutoTokenizer.from_pretrained(folder)}
    made = {"meta": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
            "rows": ROWS, "ids": {name: of_tokenizer(tokenizer) for name, tokenizer in tokenizers.items()}}
    target.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


def of_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """The encoding of each row by its trainer, by kind of row."""
    return {kind: {name: _made(tokenizer, kind, row) for name, row in rows.items()
                   if tokenizer.chat_template or name.startswith("text")} for kind, rows in ROWS.items()}


def _made(tokenizer: Any, kind: str, row: dict[str, Any]) -> Any:
    try:
        return {"prompt": _prompt, "completion": _example, "messages": _example, "pair": _pair,
                "single": _single}[kind](tokenizer, row)
    except Exception as error:  # a template raises its own, and TRL has errors of many kinds
        return {"refused": f"{type(error).__name__}: {error}"}


def _prompt(tokenizer: Any, row: dict[str, Any]) -> Any:
    from trl import GRPOTrainer

    off = _trainer(GRPOTrainer, tokenizer, tools=None, environment_factories=None, _is_vlm=False,
                   chat_template_kwargs={"enable_thinking": False})
    on = _trainer(GRPOTrainer, tokenizer, tools=None, environment_factories=None, _is_vlm=False,
                  chat_template_kwargs={})
    return {"ids": on._tokenize_prompts([row["prompt"]])[0][0],
            "without thinking": off._tokenize_prompts([row["prompt"]])[0][0]}


def _example(tokenizer: Any, row: dict[str, Any]) -> Any:
    from trl import SFTConfig, SFTTrainer
    from trl.chat_template_utils import has_generation_markers

    whole = "messages" in row  # the loss is on all answers of a conversation, or on the one completion
    trainer = _trainer(SFTTrainer, tokenizer, completion_only_loss=not whole)
    if whole and not has_generation_markers(tokenizer.chat_template):  # as for a template that it knows
        trainer.chat_template = TRAINING.get(tokenizer.chat_template)
    made = trainer._prepare_dataset(_data(row), tokenizer, _config(SFTConfig, assistant_only_loss=whole), False, None,
                                    "train")[0]
    return {"ids": made["input_ids"], "learnt": [int(label != -100) for label in made["labels"]]}


def _pair(tokenizer: Any, row: dict[str, Any]) -> Any:
    from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

    made = _trainer(DPOTrainer, tokenizer)._prepare_dataset(_data(row), tokenizer, _config(DPOConfig), "train")[0]
    scored = _trainer(RewardTrainer, tokenizer)._prepare_dataset(_data(row), tokenizer, _config(RewardConfig),
                                                                 "train")[0]
    return {"prompt": made["prompt_ids"], "chosen": made["chosen_ids"], "rejected": made["rejected_ids"],
            "scored": [scored["chosen_ids"], scored["rejected_ids"]]}


def _single(tokenizer: Any, row: dict[str, Any]) -> Any:
    from trl import KTOConfig, KTOTrainer

    made = _trainer(KTOTrainer, tokenizer, calculate_KL=False)._prepare_dataset(
        _data(row), tokenizer, _config(KTOConfig), "train")[0]
    return {"prompt": made["prompt_ids"], "completion": made["completion_ids"]}


def _trainer(kind: type, tokenizer: Any, **attributes: Any) -> Any:
    """A trainer without a model, as far as its way from rows to ids goes."""
    made = object.__new__(kind)
    vars(made).update({"_tokenizer": tokenizer, "processing_class": tokenizer, "chat_template": None, **attributes})
    return made


def _config(kind: type, **given: Any) -> Any:
    return kind(output_dir="unused", max_length=None, use_cpu=True, bf16=False, report_to="none", **given)


def _data(row: dict[str, Any]) -> Any:
    from datasets import Dataset

    return Dataset.from_list([row])


if __name__ == "__main__":
    main()
