"""Runs with rows, events, samples and lines, without a worker."""

import json

from streamlit.testing.v1 import AppTest

from app.training import more_knobs
from labcore.catalog.knob import GROUPS
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.analysis.compare.tools import append


def ran(test: AppTest) -> AppTest:
    test.run()
    assert not test.exception, [element.value for element in test.exception]
    return test


def seed(store: Store, state: str = "running", steps: int = 6, message: str = "", algorithm: str = "grpo",
         task: str = "sort", **more) -> str:
    """A run of this process with `steps` rows, one knob event, samples and a line, brought into `state`."""
    spec = make(algorithm_key=algorithm, task_key=task, steps=10, **more)
    run_id = store.create(spec, mine=True)
    if state == "starting":
        return run_id
    store.set_state(run_id, "running")
    append(store, run_id, [(Record(step, 100 * step, {
        "reward": 0.1 * step, "exact_match": 0.1 * step, "kl": 0.01 * step, "entropy": 1 / step,
        "updates": float(step), "tokens_per_second": 1000.0}), 0.5 * step) for step in range(1, steps + 1)])
    store.log(run_id, "knob", {"knob": "beta", "from": 0.04, "to": 0.2, "update": 2, "between": 1,
                               "text": "β 0.04 → 0.2"}, 3)
    for kind, content in (("samples", samples()), ("lines", line())):
        folder = run_folder(run_id) / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"step-{content['step']:06d}.json").write_text(json.dumps(content))
    if state != "running":
        store.set_state(run_id, state, message)
    return run_id


def samples(ratio: float = 1.0) -> dict:
    """Two groups; the second completion of each has markup, a line break and no exact match."""
    def completion(text, reward, advantage):
        count = len(text)
        return {"text": text, "reward": reward, "exact": reward == 1, "advantage": advantage, "truncated": reward == 0,
                "tokens": list(text), "logprobs": [-0.1] * count, "old_logprobs": [-0.1] * count,
                "ref_logprobs": [-0.3] * count, "advantages": [advantage] * count, "entropy": [0.5] * count,
                "ratio": [ratio] * count, "kl": [0.02] * count,
                "cut": ["high" if ratio > 1.2 and advantage > 0 else ""] * count}
    return {"step": 5, "clip_low": 0.2, "clip_high": 0.2, "beta": 0.04, "surrogate": surrogate(), "groups": [
        {"prompt": "dbca=", "answer": "abcd", "completions": [completion("abcd", 1.0, 0.7),
                                                              completion("<b>é\n", 0.0, -0.7)]} for _ in range(2)]}


def surrogate() -> dict:
    """The clip with ε = 0.2, as a worker draws it."""
    return {"ratio": [0.35, 0.8, 1.0, 1.2, 1.65], "positive": [0.35, 0.8, 1.0, 1.2, 1.2],
            "negative": [-0.8, -0.8, -1.0, -1.2, -1.65], "bounds": [0.8, 1.2]}


def line() -> dict:
    alpha = [-0.5, 0.0, 0.5, 1.0, 2.0]
    return {"step": 5, "alpha": alpha, "kl": [0.01 * a * a for a in alpha], "cpi": [0.1 * a for a in alpha],
            "clip": [0.1 * a - 0.02 * a * a for a in alpha], "kl_penalised": [0.1 * a - 0.001 for a in alpha],
            "beta": 0.04, "clip_low": 0.2, "clip_high": 0.2, "tokens": 64}


def components(test) -> list[dict]:
    """The data of the components of a page."""
    return [json.loads(element.proto.json or "[{}]")[0] or {} for element in test.get("bidi_component")]


def mounted(test, part: str) -> dict:
    """The data of the component that has `part`."""
    return next(data for data in components(test) if part in data)


def html(test) -> str:
    """All the HTML of a page, with the status line, which the charts write."""
    return " ".join([*(element.proto.body for element in test.get("html")),
                     *(data["status"] for data in components(test) if "tiles" in data)])


def drawn(test) -> dict[str, dict]:
    """The figures of a page by their titles."""
    data = [json.loads(element.proto.json or "[{}]")[0] for element in test.get("bidi_component")]
    return {each["title"]: each["figure"] for each in data if "figure" in each}


def saved_as(test) -> dict[str, str]:
    """What stands below the figures of a page where they are saved, by their titles."""
    return {each["title"]: each["caption"] for each in components(test) if "figure" in each}


def link(test) -> dict[str, str]:
    """What the address says."""
    return {key: value if isinstance(value, str) else value[0] for key, value in test.query_params.items()}


def unfolded(test, *groups: str):
    """Open "More knobs" and these `groups` of it (by default all groups)."""
    test.session_state[more_knobs.KEY] = True
    for group in groups or (*GROUPS, more_knobs.NO_EFFECT):
        test.session_state[more_knobs.key_of(group)] = True
    return ran(test)
