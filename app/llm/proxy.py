"""The course of a run that is rewarded by a proxy: its reward, the gold reward, and its distance from the reference.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from app.theme import number
from labcore.analysis.doctor.signal import GOLD_FELL, PROXY_ROSE
from labcore.runs.store.rows import Step

PROXY, GOLD = "reward", "reward/gold"
WIDEST = 4  # steps on either side that a mean is taken over


@dataclass(frozen=True)
class Point:
    """A step. `kl` is KL(π ‖ π_ref) of a whole completion in nats, by the batch's own samples; never below 0."""

    step: int
    proxy: float
    gold: float
    kl: float

    @property
    def distance(self) -> float:
        """√KL, in √nats: what over-optimisation is drawn against (Gao et al. 2022, arXiv:2210.10760)."""
        return sqrt(self.kl)


def course(steps: Iterable[Step]) -> list[Point]:
    """The steps that have both rewards and a KL. A mean over tokens times the mean length is that over completions."""
    return [Point(step.step, found[PROXY], found[GOLD], max(0.0, found["kl/k1"] * found["completions/mean_length"]))
            for step in steps if {PROXY, GOLD, "kl/k1", "completions/mean_length"} <= (found := step.metrics).keys()]


def smoothed(points: Sequence[Point]) -> list[Point]:
    """Each point as the mean of as many neighbours on either side: at most WIDEST, and a tenth of all."""
    last = len(points) - 1
    reaches = [min(WIDEST, len(points) // 10, place, last - place) for place in range(len(points))]
    return [_mean(points[place - reach:place + reach + 1], points[place].step) for place, reach in enumerate(reaches)]


def _mean(points: Sequence[Point], step: int) -> Point:
    count = len(points)
    return Point(step, sum(point.proxy for point in points) / count, sum(point.gold for point in points) / count,
                 sum(point.kl for point in points) / count)


def peak(means: Sequence[Point]) -> Point:
    """The point with the highest gold."""
    return max(means, key=lambda point: point.gold)


def exploits(means: Sequence[Point]) -> bool:
    """True if gold fell from its peak while the proxy rose, by as much as the doctor asks for."""
    best = peak(means)
    return best.gold - means[-1].gold > GOLD_FELL and means[-1].proxy - best.proxy > PROXY_ROSE


def words(means: Sequence[Point]) -> str:
    """The course of both rewards, in a sentence with its numbers."""
    best, last = peak(means), means[-1]
    where = f"{number(best.gold, 2)} at step {best.step:,}, KL {number(best.kl, 1)} nats"
    if exploits(means):
        return (f"Over-optimisation: gold peaked at {where} from the reference. Since then the proxy rose "
                f"{number(best.proxy, 2)} → {number(last.proxy, 2)} while gold fell to {number(last.gold, 2)}.")
    return (f"Proxy {number(means[0].proxy, 2)} → {number(last.proxy, 2)}, gold {number(means[0].gold, 2)} → "
            f"{number(last.gold, 2)}. Gold was highest with {where} from the reference.")
