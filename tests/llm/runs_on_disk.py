"""Runs of a model that is small enough for tests, with their checkpoints where the lab keeps them."""

from pathlib import Path

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS
from labcore.llm import session as session_module
from labcore.llm.session import LlmSession
from labcore.runs.files import atomic
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from tests.llm.tools import quietly, shake
from tests.llm.tools import spec as spec_of

TRAINED: dict[tuple, dict[Path, bytes]] = {}  # the files that each run wrote, because many tests use the same run


def saved(run_id: str, algorithm: str = "grpo", by: float = 0.3, **given) -> str:
    """A run whose checkpoints of steps 1 and 2 lie on the disk.

    Its weights are shaken once, so that its policy is far from the base and its answers vary.
    """
    if "sft_steps" in {knob.key for knob in ALGORITHMS[algorithm].knobs}:
        given |= {"sft_steps": 0}
    spec = spec_of(algorithm, **given)
    # Some tests replace the task of the runs.
    folder, key = run_folder(run_id), (spec.to_json(), MODELS.get(spec.model), by, session_module.make_task)
    if key in TRAINED:
        for place, content in TRAINED[key].items():
            atomic.write_bytes(folder / place, content)
        return run_id
    atomic.write_text(folder / "spec.json", spec.to_json())
    session = LlmSession.start(spec)
    shake(session.policy, by=by)
    with quietly():
        for record in session.run():
            if record is not None:
                checkpoint.save(folder, record.step, session.save)
    TRAINED[key] = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return run_id
