"""Record the curves of the presets' pictures, and check their claims.

`python -m docs.record_presets [PRESET…]` runs each preset with the seeds 0, 1 and 2, says whether its claim holds, and
writes the curves of seed 0 to labcore/catalog/recorded_presets.json. All of them take about ten minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache

from docs.record_lessons import logged
from labcore.analysis.lessons.expression import Logged, parse
from labcore.analysis.lessons.verdict import Verdict, judge
from labcore.catalog.presets import PRESETS, RECORDED, Preset
from labcore.runs.presets import spec_of

SEEDS = (0, 1, 2)
MOST = 60  # points of a curve


@cache
def run(key: str, seed: int) -> Logged:
    """The metrics of a preset's run, driven without a store."""
    return logged(spec_of(PRESETS[key], seed))


def verdict(preset: Preset, seeds: Sequence[int] = SEEDS) -> Verdict:
    """The verdict of a preset's claim over these seeds."""
    keys = {"run": preset.key, **({"beside": preset.beside} if preset.beside else {})}
    return judge(parse(preset.claim, list(keys)), {name: [run(key, seed) for seed in seeds]
                                                   for name, key in keys.items()})


def curves(preset: Preset) -> dict[str, list[float]]:
    """The curves of its picture; for a long run, means of neighbouring steps."""
    found = {}
    for metric in preset.drawn:
        values = run(preset.key, SEEDS[0])[metric][1]
        width = -(-len(values) // MOST)
        found[metric] = [float(f"{values[at:at + width].mean():.3g}") for at in range(0, len(values), width)]
    return found


def main(keys: Sequence[str]) -> None:
    """Record the presets of these keys, or all."""
    kept = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    for key in keys or PRESETS:
        found = verdict(PRESETS[key])
        print(f"{key}: {found.says}", *(f"\n    {part.text}: {part.left} and {part.right}" for part in found.parts),
              flush=True)
        kept[key] = {"settings": PRESETS[key].settings, "curves": curves(PRESETS[key])}
        RECORDED.write_text(json.dumps({key: kept[key] for key in PRESETS if key in kept}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
