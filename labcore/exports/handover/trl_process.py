"""Settings of TRL's PRMTrainer for the knobs of a process reward model, and the code of its rows.

TRL 1.14 removed this trainer: its scripts ask for 1.13.
"""

from __future__ import annotations

from labcore.exports.handover.plan import Rules
from labcore.exports.handover.rules import built_in, choice, given, missing, switch, to
from labcore.exports.handover.shared_rules import FILTERS, MEASURED
from labcore.tasks.steps import FROM_FILE, separator_of

_SAMPLED = "the script samples no answers: label answers of your own in labelled_steps() below"
RULES: Rules = {
    "step_labels": choice({FROM_FILE: ({}, "")}, _SAMPLED),
    "step_separator": given(lambda plan, value: {"step_separator": separator_of(plan.spec.knobs)}),
    "last_step_only": to("train_on_last_step_only"), "prompts_per_step": to("per_device_train_batch_size"),
    "eval_every": MEASURED, "eval_answers": MEASURED,
    **dict.fromkeys(("label_rollouts", "hard_labels"), lambda plan, value: (
        missing(_SAMPLED) if plan["step_labels"] == "monte_carlo" else built_in())(plan, value)),
    **dict.fromkeys(("group_size", "temperature", "top_k", "top_p", "max_new_tokens", *FILTERS), lambda plan, value: (
        switch(missing(_SAMPLED)) if plan["step_labels"] != FROM_FILE else built_in())(plan, value))}
_ROWS = '''

def labelled_steps(count: int, seed: int = 0) -> list[dict]:
    """Rows with a prompt, the steps of an answer and a label for each."""
{body}
'''
_ABSENT = _ROWS.format(body='''    raise SystemExit(
        "Write labelled_steps() here: rows with 'prompt', 'completions' and 'labels'.")''')
_FILE = _ROWS.format(body='''    found = random.Random(seed).choices(rows(), k=count)
    return [{"prompt": str(row["prompt"]), "completions": row["completions"], "labels": [label > 0.5 for label in
            row["labels"]]} for row in found]''')
CODE = {FROM_FILE: _FILE, "step_verifier": _ABSENT, "monte_carlo": _ABSENT}  # by the source of step labels
