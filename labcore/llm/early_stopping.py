"""Early stopping: an online run on a proxy ends where it has drifted too far, or where its gold score has fallen.

Left out: a held-out set. Gold is measured on the batch, whose prompts are fresh, and over the last few steps, so that
one noisy batch ends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from labcore.llm.session import LlmSession

WINDOW = 4  # steps whose mean gold score counts


def reason(session: LlmSession, metrics: Mapping[str, float]) -> str:
    """Why a run is to end after this step, in words; empty where it is to continue. Notes the step's gold score."""
    knobs = session.knobs
    if knobs["stop_kl"] and metrics["kl"] > knobs["stop_kl"]:
        return (f"early stopping: the KL to the reference reached {metrics['kl']:.2f} nats/token, above the limit of "
                f"{knobs['stop_kl']:g}")
    if "reward/gold" not in metrics:
        return ""
    session.recent_gold = [*session.recent_gold, metrics["reward/gold"]][-WINDOW:]
    if len(session.recent_gold) < WINDOW:
        return ""
    gold = sum(session.recent_gold) / WINDOW
    session.best_gold = max(session.best_gold, gold)
    if not knobs["stop_gold_fall"] or session.best_gold - gold < knobs["stop_gold_fall"]:
        return ""
    return (f"early stopping: the gold reward fell to {gold:.3f}, {session.best_gold - gold:.3f} below its best of "
            f"{session.best_gold:.3f} (means of {WINDOW} steps)")
