"""The data set and the reward of a task as stand-alone Python code, for scripts for other tools.

It defines `problems(count, seed)`, rows with prompt and answer, and where the task has a score `score(completion,
answer)`. Generated tasks have the lab's own distribution, not its very prompts: the random numbers are others. A task
that this module does not know leaves both to be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from labcore.catalog import choices
from labcore.exports.handover import conversations, environments
from labcore.exports.handover.plan import Plan, learns_answers
from labcore.exports.handover.sources import source
from labcore.runs.files import untrusted
from labcore.tasks import add, math_equal, numbers, verifiers

MATH_VERIFY = "0.9.0"  # as requirements.txt has it

_SORT = '''
LETTERS = {letters}


def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Different letters to be written in alphabetical order."""
    rng = random.Random(seed)
    variety = "abcdefghijklmnopqrstuvwxyz"[: max(10, LETTERS)]
    words = ["".join(rng.sample(variety, LETTERS)) for _ in range(count)]
    return [{{"prompt": word + "=", "answer": "".join(sorted(word))}} for word in words]
'''
_ADD = '''
DIGITS = {digits}


def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Sums of two numbers of DIGITS digits."""
    rng = random.Random(seed)
    low = 10 ** (DIGITS - 1) if DIGITS > 1 else 0
    pairs = [(rng.randrange(low, 10**DIGITS), rng.randrange(low, 10**DIGITS)) for _ in range(count)]
    return [{{"prompt": f"{{a}}+{{b}}=", "answer": str(a + b)}} for a, b in pairs]
'''
_ROWS = '''
DATA = {data!r}  # your file


def rows() -> list[dict[str, str]]:
    """The lines of your file that are not blank."""
    lines = Path(DATA).read_text("utf-8-sig").split("\\n")
    return [json.loads(line) for line in lines if line.strip()]


def text_of(row: dict, *names: str) -> str:
    """The first of these fields that a row has."""
    return str(next(row[name] for name in names if row.get(name) is not None))


def drawn(found: list, count: int, seed: int) -> list:
    """`count` of them at random: none twice while there are enough."""
    rng = random.Random(seed)
    return rng.sample(found, count) if count <= len(found) else rng.choices(found, k=count)


def problems(count: int, seed: int = 0) -> list[dict]:
    """Prompts of your file with their answers, and its other columns for reward functions."""
    found = {kept}
    others = dict.fromkeys(name for row in found for name in row if name not in {hidden!r})
    return [{{**{{name: row.get(name) for name in others}}, "prompt": text_of(row, "prompt", "question"),
             "answer": text_of(row, *{answer!r})}} for row in drawn(found, count, seed)]
'''
_PAIRS = '''

def pairs(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Pairs of your file."""
    return [{{"prompt": text_of(row, "prompt", "question"), "chosen": str(row["chosen"]),
             "rejected": str(row["rejected"]){answer}, **{{key: float(row[key]) for key in ("margin",) if key in row}}}}
            for row in drawn(rows(), count, seed)]
'''
_ANSWER = ', "reference": text_of(row, "reference", "answer")'  # that is learnt beside both sides
_SINGLES = '''

def pairs(count: int, seed: int = 0) -> list[dict]:
    """Pairs of your file, or single completions with their labels."""
    return [{"prompt": text_of(row, "prompt", "question"), **{
        key: row[key] for key in ("chosen", "rejected", "completion", "label") if key in row}}
        for row in drawn(rows(), count, seed)]
'''
_TEXT = '''
DATA = {data!r}  # your file
PROMPT_LENGTH, PIECE_LENGTH = {prompt_length}, {piece_length}  # characters


def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Pieces from anywhere in your text: the start of a piece is the prompt, the rest its continuation."""
    rng = random.Random(seed)
    text = Path(DATA).read_text("utf-8-sig").replace("\\r\\n", "\\n").replace("\\r", "\\n")
    starts = [rng.randrange(len(text) - PIECE_LENGTH + 1) for _ in range(count)]
    return [{{"prompt": text[start:start + PROMPT_LENGTH],
             "answer": text[start + PROMPT_LENGTH:start + PIECE_LENGTH]}} for start in starts]
'''
_SCORE = '''

def score(completion: str, answer: str) -> float:
    """The reward of a completion."""
    return float({expression})
'''
_OTHER = '''
def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Rows with a prompt and its answer."""
    raise SystemExit({missing!r})
'''
_SAMPLED = '''
SEED, PAIR_PROMPTS, GROUP_SIZE, MAX_NEW_TOKENS = {seed}, {pair_prompts}, {group_size}, {max_new_tokens}
SAMPLING = {{"temperature": {temperature}, "top_k": {top_k}, "top_p": {top_p}, "min_p": {min_p},
            "repetition_penalty": {repetition_penalty}}}


def sampled_pairs(model, tokenizer, prompts: int = PAIR_PROMPTS) -> list[dict[str, str]]:
    """Pairs as the lab makes them: the model answers each prompt GROUP_SIZE times, better answers beside worse ones."""
    import torch

    torch.manual_seed(SEED)
    found, asked = [], problems(prompts, SEED)
    for start in range(0, prompts, 64):
        some = asked[start:start + 64]
        inputs = tokenizer([{written} for row in some], return_tensors="pt", padding=True, padding_side="left",
                           add_special_tokens=False)
        ids = inputs["input_ids"].to(model.device)
        sampled = model.generate(ids, attention_mask=inputs["attention_mask"].to(model.device), do_sample=True,
                                 max_new_tokens=MAX_NEW_TOKENS, num_return_sequences=GROUP_SIZE, **SAMPLING)
        texts = tokenizer.batch_decode(sampled[:, ids.shape[1]:], skip_special_tokens=True)
        for index, row in enumerate(some):
            group = [text for text in texts[index * GROUP_SIZE:(index + 1) * GROUP_SIZE] if text]
            ordered = sorted(group, key=lambda text: score(text, row["answer"]))
            for chosen, rejected in zip(reversed(ordered), ordered[:len(ordered) // 2]):
                if score(chosen, row["answer"]) > score(rejected, row["answer"]):
                    found.append({{"prompt": row["prompt"], "chosen": chosen, "rejected": rejected{answer}}})
    if not found:
        raise SystemExit("No prompt got both a better and a worse answer: raise PAIR_PROMPTS or GROUP_SIZE.")
    return found
'''
# How a prompt is written to be sampled from: as plain text, or by the model's chat template.
_WRITTEN = {False: 'row["prompt"]',
            True: 'tokenizer.apply_chat_template(turns(row["prompt"]), tokenize=False, add_generation_prompt=True)'}


def task_code(plan: Plan, more: str = "", every_answer: bool = True, arguments: bool = False) -> str:
    """The code of the run's task and then `more`, with the imports that both need on top.

    SFT on a whole conversation has a row for `every_answer`, for tools that learn one answer of a row; with
    `arguments`, those of the chat template go with every row.
    """
    knobs, spec = plan.spec.knobs, plan.spec
    name = Path(spec.data).name if spec.data else ""
    answer = ("answer",) if spec.task_row.verifiable else ("chosen", "completion")
    kept = "rows()" if spec.task_row.verifiable else '[row for row in rows() if row.get("label", True)]'
    missing = f"Write problems() and score() here: they are what {spec.task_row.source} does in the lab."
    read = conversations.reads_layouts(plan)
    body = environments.code(plan) if spec.task_row.has_turns else conversations.code(
        plan, every_answer and plan.loop == "sft", needs_pairs(plan)) if read else _BODIES.get(
        spec.task_row.source, _OTHER).format(**knobs, data=name, answer=answer, kept=kept, missing=missing,
                                             hidden=conversations.GIVEN_OTHERWISE)
    if plan.chat:
        body += conversations.turns_code(plan, arguments)
    if needs_pairs(plan) and not brings_pairs(plan):
        body += _scored(plan) + "\n" + _SAMPLED.format(
            **{"pair_prompts": plan.rows, "group_size": 2, "seed": spec.seed, **knobs}, written=_WRITTEN[plan.chat],
            answer=', "reference": row["answer"]' if learns_answers(plan) else "")
    elif needs_pairs(plan) and not read:
        body += _SINGLES if learns_singles(plan) else _PAIRS.format(answer=_ANSWER if learns_answers(plan) else "")
    elif plan.loop == "online" and not spec.task_row.has_turns:
        body += _scored(plan)
    return imports(body + more) + "\n" + body + more


def packages(plan: Plan, antlr: str = "antlr4-13-2") -> str:
    """Further packages of the code, as arguments of `pip install`; `antlr` is the extra that fits the tool."""
    return f" math-verify[{antlr}]=={MATH_VERIFY}" if "import parse, verify" in task_code(plan) else ""


def needs_pairs(plan: Plan) -> bool:
    """Whether the run learns from pairs."""
    return plan.loop in ("preference", "reward_model")


def learns_singles(plan: Plan) -> bool:
    """Whether the run learns from single completions, as its file may have them."""
    return any(choices.PREFERENCE_LOSS[name].unpaired for name in choices.losses_of(plan.spec.knobs)[:1])


def brings_pairs(plan: Plan) -> bool:
    """Whether the pairs are the user's; else they are sampled."""
    return not plan.spec.task_row.verifiable


def imports(body: str) -> str:
    """The import lines of the modules that the code names."""
    reads = conversations.READER in body
    used = {name for name in ("asyncio", "json", "math", "random", "re", "sys", "regex")
            if re.search(rf"\b{name}\.", body)}
    used |= {*conversations.IMPORTED} if reads else set()
    lines = [line for use, line in ((r"\bdeque\(", "from collections import deque"),
                                    (r"\bDecimal\(", "from decimal import Decimal"),
                                    (r"\bPath\(", "from pathlib import Path"),
                                    (r"\bAny\b", "from typing import Any"),
                                    (r"\bNamedTuple\b", "from typing import NamedTuple")) if re.search(use, body)]
    if reads:
        lines = sorted({*lines, *conversations.FROM} - {"from typing import Any", "from typing import NamedTuple"})
    return "\n".join([*(f"import {name}" for name in sorted(used - {"regex"})), *lines,
                      *(["", "import regex"] if "regex" in used else [])]) + "\n"


def _scored(plan: Plan) -> str:
    """`score`, and what it calls."""
    shaped = "shaped" if plan.get("reward_shape") == "shaped" else "equal"
    helpers, expression = _SCORINGS[plan.get("verifier", shaped)](plan)
    return helpers + _SCORE.format(expression=expression)


_BODIES = {"labcore.tasks.sort:Sort": _SORT, "labcore.tasks.add:Add": _ADD, "labcore.tasks.text:Text": _TEXT,
           "labcore.tasks.prompts:Prompts": _ROWS, "labcore.tasks.preferences:Preferences": _ROWS}

_JSON = ("DEEPEST", "MOST_DIGITS", "_HALF_ESCAPED", "_TEXT_OR_CONSTANT", "NO_VALUE", "NotJSON", "json_of", "_whole",
         "_real", "_Constant", "_refused", "_placed", "_WITH_CONSTANTS", "_STRICT", "_depth")
Scoring = Callable[[Plan], tuple[str, str]]
# How a completion is judged: the code it needs, and the expression.
_SCORINGS: dict[str, Scoring] = {
    "equal": lambda plan: ("", "completion == answer"),
    "shaped": lambda plan: (source(add, "digits_right"), "digits_right(completion, answer)"),
    "exact": lambda plan: ("", "completion.strip() == answer.strip()"),
    "numeric": lambda plan: (source(numbers, "_NUMBER", "_BEFORE", "_AFTER", "_CONTEXT", "_BOXED", "number", "numeric",
                                    "_value"), "numeric(completion, answer)"),
    "math": lambda plan: (source(math_equal, "MATH_CHARACTERS", "math_equal", "math_text"),
                          "math_equal(completion, answer)"),
    "choice": lambda plan: (source(verifiers, "_LETTER", "_OTHER", "_WORD", "_BOXED_LETTER", "_SAID_LETTER",
                                   "_FIRST_LETTER", "letter", "choice"), "choice(completion, answer)"),
    "regex": lambda plan: (f"\nPATTERN = {plan['pattern']!r}\n", "regex.search(PATTERN, completion) is not None"),
    "contains": lambda plan: (f"\nPATTERN = {plan['pattern']!r}\n", "(PATTERN or answer.strip()) in completion"),
    "length": lambda plan: (f"\nLENGTH_LOW, LENGTH_HIGH = {plan['length_low']}, {plan['length_high']}\n",
                            "LENGTH_LOW <= len(completion) <= LENGTH_HIGH"),
    "format": lambda plan: (f"\nPATTERN = {plan['pattern']!r}\n" + source(verifiers, "in_format"),
                            "in_format(completion, PATTERN)"),
    "json": lambda plan: (source(untrusted, *_JSON) + source(verifiers, "_FENCE", "is_json", "_alike"),
                          "is_json(completion, answer)"),
}
