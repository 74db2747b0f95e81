"""The run as a shell script for ms-swift: arguments of `swift rlhf` or `swift sft`.

Its trainers are TRL's or made after them, so most arguments and names of losses are TRL's. The script writes prompts as
whole texts and registers a template that leaves them as they are: ms-swift has templates of its own, which it chooses
by the model's family, and cannot tell the family of a folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labcore.catalog import choices
from labcore.exports.handover import shell, shell_episodes, trl
from labcore.exports.handover.ms_swift_rules import DEMONSTRATIONS, OF_TRAINER, RULES, TOOL
from labcore.exports.handover.plan import Line, Plan
from labcore.exports.handover.remarks import remarks, requirement
from labcore.exports.handover.rules import UNKNOWN, lines, missing
from labcore.exports.handover.task_code import brings_pairs, learns_singles, needs_pairs, packages, task_code
from labcore.exports.handover.trl_pairs import LABELLED

VERSION = "4.6.0"


def kind(plan: Plan) -> str:
    """The algorithm that `swift rlhf` is asked for, or "sft"; empty where ms-swift has nothing like the run's."""
    return OF_TRAINER.get(trl.trainer(plan), "")


def mapped(plan: Plan) -> list[Line]:
    """The arguments of each knob of the run in ms-swift. A knob without a rule has no equivalent."""
    rules = {**RULES.get(kind(plan), {}), **(shell_episodes.SWIFT_RULES if plan.spec.task_row.has_turns else {})}
    found = lines(plan, rules if kind(plan) else dict.fromkeys(plan.spec.knobs, missing(
        "no equivalent: ms-swift has no such trainer")), TOOL)
    return [replace(line, note=f"no equivalent in {TOOL}") if line.note == UNKNOWN.note else line for line in found]


def settings(plan: Plan) -> dict[str, Any]:
    """Arguments and their values: first the run's knobs, then settings for parts of the lab without a knob."""
    if not kind(plan):
        return {}
    steps = plan.steps * plan.passes * plan.parts
    found: dict[str, Any] = {"model": "$MODEL", "model_type": "any_model", "use_hf": True, "torch_dtype": "float32",
                             "fp16": False, "external_plugins": "task.py", "dataset": "train.jsonl",
                             "gradient_accumulation_steps": 1}
    if kind(plan) != "sft":
        found["rlhf_type"] = kind(plan)
    if plan.loop == "online":
        rewards = {} if _taught(plan) else {"reward_funcs": "score"}
        found |= {"log_completions": True, "log_entropy": True} | (
            shell_episodes.SWIFT_SETTINGS if plan.spec.task_row.has_turns else rewards)
    if not plan.get("lora_rank"):
        found["tuner_type"] = "full"
    for line in mapped(plan):
        found |= line.settings
    return found | {"seed": plan.spec.seed, "max_steps": steps, "logging_steps": 1, "save_steps": steps,
                    "save_only_model": True, "report_to": "none", "output_dir": "trained", "add_version": False}


def _taught(plan: Plan) -> bool:
    """Whether the advantage is the teacher's, without rewards."""
    return any(each.teacher for each in choices.chosen(choices.ADVANTAGE, plan.spec.knobs))


def words(argument: str, value: Any) -> str:
    """An argument with its value or values, as the shell takes them."""
    values = value if isinstance(value, list | tuple) else [value]
    said = [str(each).lower() if isinstance(each, bool) else each for each in values]
    return " ".join([f"--{argument}", *map(shell.quoted, said)])


_SAID = {"model_type": "registered in task.py: the texts as they are", "fp16": "else ms-swift computes float32 in fp16",
         "log_completions": "in trained/completions.jsonl", "report_to": "metrics are in trained/logging.jsonl"}


def script(plan: Plan) -> str:
    """The whole script; a few comments where ms-swift has nothing like the run's algorithm."""
    found = mapped(plan)
    if plan.spec.task_row.has_turns and not shell_episodes.plays(plan):
        return shell.no_episodes(found, TOOL, VERSION)
    if not kind(plan):
        return f"{_NOTHING.format(label=plan.spec.row.label)}#\n{remarks(found, TOOL)}\n"
    needs = requirement(TOOL, VERSION) + packages(plan)
    needs += " bitsandbytes" * (plan["optimizer"] == "adamw_8bit") + " vllm" * ("use_vllm" in settings(plan))
    command = "sft" if kind(plan) == "sft" else "rlhf"
    top = shell.head(plan, found, TOOL, TOOL, VERSION, needs, f"swift/arguments/{command}_args.py")
    names = _SAID | {key: line.knob for line in found for key in line.settings}
    rows = [(words(key, value), names.get(key, "")) for key, value in settings(plan).items()]
    return "".join([
        top, shell.begin(plan), shell.file("task.py", task_code(
            plan, shell_episodes.code_swift(plan) if shell_episodes.plays(plan) else _main(plan), arguments=True)),
        'python task.py "$MODEL"\n', shell.array(rows),
        f'\nNPROC_PER_NODE="$GPUS" swift {command} "${{settings[@]}}" "$@"\n', _WATCH])


def _main(plan: Plan) -> str:
    """The code of task.py behind that of the task: it writes the rows, and swift imports it for the rest."""
    shape = plan.loop if not needs_pairs(plan) else "singles" if learns_singles(plan) else "pairs"
    sampled = needs_pairs(plan) and not brings_pairs(plan)
    classes = ("AutoModelForCausalLM, " if sampled else "") + "AutoTokenizer"
    margin = f', margin=row.get("margin", {plan["margin"]})' if plan.loop == "reward_model" and (
        plan["margin"] or brings_pairs(plan)) else ""
    asked = f"({plan.rows}, {plan.spec.seed})"
    rows = {"pairs": "found", "singles": "labelled(found)"}.get(shape, f"problems{asked}")
    pairs = _SAMPLED.format(rows=plan.rows) if sampled else f"    found = pairs{asked}\n" if needs_pairs(plan) else ""
    return "".join([
        LABELLED if shape == "singles" else "", _CHAT if plan.chat else "",
        _EXAMPLE.format(prompt="written(prompt)" if plan.chat else "prompt"),
        _TOKENIZER.format(classes=classes) if plan.chat or sampled else "", pairs,
        _ROWS.format(file="train.jsonl", example=_EXAMPLES[shape].format(margin=margin), rows=rows),
        _ROWS.format(file=DEMONSTRATIONS, example=_EXAMPLES["sft"], rows=rows) if plan.get("sft_weight") else "",
        _PLUGIN.replace("BOS", str(not plan.chat)), _REWARD if plan.loop == "online" and not _taught(plan) else ""])


_NOTHING = f'''# ms-swift {VERSION} has no trainer for {{label}}, so there is nothing to start here: take the script for
# another tool.
'''
_CHAT = '''

def written(prompt: str | list[dict[str, str]]) -> str:
    """A prompt as the model's chat template writes it."""
    return TOKENIZER.apply_chat_template(turns(prompt), tokenize=False, add_generation_prompt=True,
                                         **TEMPLATE_ARGUMENTS)
'''
_EXAMPLE = '''

def example(prompt, answer: str | None = None, **columns) -> dict:
    """A row for ms-swift: the whole text before the answer is the turn of the user, the answer that of the model."""
    answered = [] if answer is None else [{{"role": "assistant", "content": answer}}]
    return {{"messages": [{{"role": "user", "content": {prompt}}}, *answered], **columns}}


if __name__ == "__main__":
'''
_TOKENIZER = '''    from transformers import {classes}

    TOKENIZER = AutoTokenizer.from_pretrained(sys.argv[1])
'''
_SAMPLED = '''    found = sampled_pairs(AutoModelForCausalLM.from_pretrained(sys.argv[1]), TOKENIZER)
    found = (found * ({rows} // len(found) + 1))[:{rows}]
'''
_ROWS = '''    with open("{file}", "w", encoding="utf-8") as file:
        for row in {rows}:
            row = {example}
            file.write(json.dumps(row, ensure_ascii=False) + "\\n")
'''
_EXAMPLES = {"online": 'example(row["prompt"], solution=row["answer"])', "sft": 'example(row["prompt"], row["answer"])',
             "singles": 'example(row["prompt"], row["completion"], label=bool(row["label"]))',
             "pairs": 'example(row["prompt"], row["chosen"], rejected_response=row["rejected"]{margin})'}
_PLUGIN = '''else:  # imported by swift
    from swift.model import ModelLoader, ModelMeta, register_model
    from swift.template import TemplateMeta, register_template

    register_template(TemplateMeta("as_written", [], ["{{QUERY}}"], None, auto_add_bos=BOS))
    register_model(ModelMeta("any_model", [], ModelLoader, template="as_written"))
'''
_REWARD = '''
    from swift.rewards import ORM, orms

    class Score(ORM):
        """The reward. ms-swift calls it with the completions and the column `solution` of their rows."""

        def __call__(self, completions: list[str], solution: list[str], **_) -> list[float]:
            return [score(text, right) for text, right in zip(completions, solution)]

    orms["score"] = Score
'''
_WATCH = '''
# The lab shows this training, live or afterwards:
#     python -m labcore watch trained
'''
