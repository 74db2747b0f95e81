"""Twenty questions in a tiny grammar: "which animal?" is found by questions of one word, "fly?", and a guess, "bat!".

Each animal has some of the properties; a question after one is answered by "yes" or "no", and the first guess ends the
episode. Every turn may cost a little, so asking what tells most apart pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.environment import Environment, EnvironmentTask, Player, Row, Step
from labcore.tasks.task import Chance

PROPERTIES = ("fly", "fur", "wet")
# Which of them each animal has: all eight combinations, so three questions always tell it.
ANIMALS = {"bat": "fly fur", "owl": "fly", "gull": "fly wet", "otter": "fur wet", "fox": "fur", "fish": "wet",
           "snake": "", "griffin": "fly fur wet"}
ASKED, YES, NO, UNKNOWN, RIGHT, WRONG = "which animal?", "yes", "no", "?", "right", "wrong"
CURIOUS = 0.6  # share of the turns in which the simple player asks while it does not know


class Questions:
    """One episode: `row` has the `animal` and the `cost` of a turn."""

    def reset(self, row: Row) -> str:
        self.animal, self.cost = str(row["animal"]), float(row["cost"])
        return ASKED

    def step(self, text: str) -> Step:
        word, sign = text.strip()[:-1], text.strip()[-1:]
        if sign == "!" and word in ANIMALS:
            right = word == self.animal
            return Step(RIGHT if right else WRONG, float(right), True)
        if sign == "?" and word in PROPERTIES:
            return Step(YES if word in ANIMALS[self.animal].split() else NO, -self.cost, False)
        return Step(UNKNOWN, -self.cost, False)


class TwentyQuestions(EnvironmentTask):
    """Animals, each as likely as the others. A turn that is no guess costs `knobs["question_cost"]`."""

    name = "twenty_questions"
    characters = "?![] -" + "".join(sorted(set("".join((*ANIMALS, *PROPERTIES, ASKED, YES, NO, RIGHT, WRONG)))))

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        super().__init__(knobs)
        self.cost = float(knobs["question_cost"])

    def environment(self) -> Environment:
        return Questions()

    def draw_rows(self, count: int, rng: Chance) -> list[Row]:
        assert isinstance(rng, np.random.Generator), "it has no file"
        names = list(ANIMALS)
        return [{"animal": names[place], "cost": self.cost} for place in rng.integers(len(names), size=count)]

    def player(self, rng: np.random.Generator) -> Player:
        return Curious(rng)


class Curious:
    """Asks properties in any order and guesses among the animals that the answers leave over, often too soon."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.known, self.asked = rng, dict[str, bool](), ""

    def __call__(self, observation: str) -> str:
        if observation in (YES, NO):
            self.known[self.asked] = observation == YES
        open_ = [word for word in PROPERTIES if word not in self.known]
        if open_ and self.rng.random() < CURIOUS:
            self.asked = str(self.rng.choice(open_))
            return self.asked + "?"
        left = [name for name, has in ANIMALS.items()
                if all((word in has.split()) == known for word, known in self.known.items())]
        return str(self.rng.choice(left)) + "!"
