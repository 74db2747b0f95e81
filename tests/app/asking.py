"""Runs whose models can be asked, and a launcher that answers for them at once or never."""

from typing import Any

from labcore.runs import jobs
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import run_folder
from tests.app.seeding import seed


def trained(store, algorithm: str = "grpo", steps: tuple[int, ...] = (0, 2, 6), state: str = "finished",
            **more) -> str:
    """A run with (empty) checkpoints, and the base that it started from."""
    run_id = seed(store, state, algorithm=algorithm, **more)
    folder = run_folder(run_id)
    write_text(folder / "spec.json", store.run(run_id).spec.to_json())
    for step in steps:
        (folder / "checkpoints" / f"step-{step:06d}" / "policy").mkdir(parents=True)
    return run_id


class Answering:
    """In place of a launcher's `compute`: keeps what was asked, and answers by `reply(spec)`; None: not yet."""

    def __init__(self, launcher, reply=None):
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.reply = reply or answers
        launcher.compute, launcher.cancel = self.compute, self.cancelled.append

    def compute(self, spec):
        job = jobs.put(spec)
        if not jobs.ended(job):
            self.asked.append(dict(spec))
            found = self.reply(spec)
            if isinstance(found, str):
                jobs.fail(job, found)
            elif found:
                jobs._keep(job, found)
        return job


def answers(spec) -> dict[str, Any] | None:
    """What the jobs "answer" and "quiz" give: the right answer by every model but a base, which writes <b>. Nothing of
    other jobs."""
    if "models" not in spec:
        return None

    def text(name, row):
        return "<b>" if name.startswith("base:") else f"abc{row}"

    def one(name, row):
        tokens = [*text(name, row), "<eos>"]
        return {"text": text(name, row), "truncated": False, "reward": 1.0, "exact": not name.startswith("base:"),
                "tokens": tokens, "logprob": -0.4, "base_logprob": -0.8, "logprobs": [-0.1] * len(tokens),
                "base_logprobs": [-0.2] * len(tokens), "top": [[[token, 0.9, 0.8]] for token in tokens]}

    columns = [{"model": name, "ends": ["<eos>"], "answers": [one(name, row) for row in range(spec["count"])]}
               for name in spec["models"]]
    questions = [{"prompt": spec.get("prompt") or f"cba{row}=", "answer": "abc"} for row in range(spec["count"])]
    return {"prompt": spec.get("prompt"), "columns": columns, "twins": True, "questions": questions}


def batch(spec) -> dict[str, Any]:
    """What the job "one_batch" gives, for two algorithms; the second has neither a clip nor, here, a gradient."""
    def about(mean):
        return {"mean": mean, "se": 0.01}

    effect = {"reward": about(0.6), "resampled": about(0.05), "weighted": about(-0.04), "kl": about(0.008)}
    grpo = {"key": "grpo", "label": "GRPO", "loss": 0.0, "norm": 0.7, "unclipped": 0.5 if spec["updates"] else 1.0,
            "clipped_frac": 0.25 if spec["updates"] else 0.0, "mean_push": 0.01, "push": [[1.5, -0.5, 1.0], [-2.0]],
            "knobs": {"beta": 0.04}}
    other = {**grpo, "key": "reinforce", "label": "REINFORCE", "norm": 0.0, "unclipped": None, "clipped_frac": None,
             "push": [[0.0, 0.0, 0.0], [0.0]]}
    completions = [{"prompt": "ba=", "text": "a<", "reward": 1.0, "exact": True, "truncated": False,
                    "ratio": [1.0, 1.3, 0.9], "tokens": ["a", "<", "<eos>"]},
                   {"prompt": "ba=", "text": "b", "reward": 0.0, "exact": False, "truncated": True, "ratio": [1.0],
                    "tokens": ["b"]}]
    return {"model": spec["model"], "updates": spec["updates"], "stepper": spec.get("stepper", "grpo"), "own": "grpo",
            "critic": {"fitted": True, "batches": 8, "passes": 4, "explained_variance": 0.1}, "step_length": 0.03,
            "cosines": [[1.0, None], [None, None]], "before": {"reward": about(0.55), "prompts": 512},
            "effects": {"grpo": {"equal": effect, "own": {**effect, "length": 0.2}},
                        "reinforce": {"equal": None, "own": {**effect, "length": 0.1}}},
            "batch": {"prompts": 16, "group_size": 8, "tokens": 900, "reward": 0.5, "flat_groups": 0.25,
                      "spread": 0.5},
            "completions": completions, "algorithms": [grpo, other]}


def previewed(rows: int = 30, **other) -> dict[str, Any]:
    """What the job "data_preview" gives of a file whose rows all fit."""
    def piece(text, kind="text"):
        return [text, [7], kind]

    shown = [{"line": line, "turns": [], "layout": "prompt and answer", "fields": {"q": "prompt", "answer": "answer"},
              "columns": [["level", "<b>"]], "tokens": 12, "prompt": [
                  piece("<s>", "special"), *[piece("be", "template")] * 9, piece("<2"), piece("</s>", "special")],
              "answers": [{"label": "answer", "tokens": 1, "pieces": [piece("3")]}]} for line in (1, 2)]
    lengths = {"quantiles": [3, 5, 8, 12], "edges": [3.0, 6.0, 12.0], "counts": [20, 10]}
    none = {"count": 0, "lines": [], "why": ""}
    return {"context": 100, "room": 36, "template": "own", "has_template": True, "rows": rows,
            "layouts": [["prompt and answer", rows, 1]], "left_out": none, "refused": none, "unjudged": none,
            "out_of_order": none, "long": {**none, "longest": 0}, "lengths": {"prompt": lengths, "whole": lengths},
            "measured": rows, "folds": False, "conversations": 0, "repeated": 0, "disagreeing": 0, "fits": "exact",
            "answered": True, "columns": ["level"], "shown": shown, **other}
