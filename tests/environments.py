"""An environment with rewards in every turn, small enough to be enumerated, and tasks that play any environment."""

from labcore.tasks.environment import EnvironmentTask, Step

LIMITS = {"max_turns": 3, "turn_tokens": 3, "observation_length": 20}


class Parrot:
    """Pays the share of letters before "n" in each turn, and half as much again for a turn that begins as the one
    before it ended; ends at "a"."""

    def reset(self, row):
        self.heard = row["first"]
        return self.heard

    def step(self, text):
        share = sum(letter < "n" for letter in text) / 8 + 0.5 * text.startswith(self.heard[-1])
        self.heard = text or "-"
        return Step(self.heard.upper(), share, text == "a")


class Plays(EnvironmentTask):
    """A task on a class of environments, whose rows name a first letter."""

    name, characters, letters = "parrot", "abcdABCD-[] ", "abcd"

    def __init__(self, environment=Parrot, **changes):
        super().__init__({**LIMITS, **changes})
        self.environment = environment

    def environment(self):
        raise AssertionError("each has its own")

    def draw_rows(self, count, rng):
        return [{"first": self.letters[place]} for place in rng.integers(len(self.letters), size=count)]
