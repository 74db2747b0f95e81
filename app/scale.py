"""A scale of numbers with round ticks, for charts that the pages draw themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10


@dataclass(frozen=True)
class Scale:
    """The lowest and the highest number of an axis."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """The position of a number, from 0 to 1; numbers beyond an end get the position of that end."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """Two to six round numbers.

        >>> Scale(-0.21, 0.55).ticks, Scale(0.9, 4.6).ticks
        ([-0.2, 0.0, 0.2, 0.4], [1.0, 2.0, 3.0, 4.0])
        """
        ten = 10.0 ** floor(log10(self.high - self.low))
        step = next(ten * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if (self.high - self.low) / (ten * part) < 6)
        return [round(place * step, 10) + 0.0 for place in range(ceil(self.low / step), floor(self.high / step) + 1)]


def around(low: float, high: float, room: float = 0.06) -> Scale:
    """A scale that has some numbers with a little `room`, a share of its width, on both sides."""
    space = room * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low - space, high + space)
