"""The tasks with several turns: an environment answers each turn of the model (`labcore.tasks.environment`)."""

from __future__ import annotations

from labcore.catalog.knob import Knob
from labcore.catalog.task import Task

_LOOPS = ("online", "sft")
ROLES = ("user", "tool")
MAX_TURNS = Knob("max_turns", "Turn limit", 8, "Most turns of an episode, which ends there if the environment has not "
                 "ended it. More: longer episodes, each step costs more. Fewer: the task may become impossible.",
                 low=1, high=64, safe=(2, 16), unit="turns", group="task", aliases="max_assistant_turns "
                 "max_tool_calling_iterations")
TURN_TOKENS = Knob("turn_tokens", "Length limit of a turn", 8, "Longest turn of the model. Higher: longer turns are "
                   "possible, each step costs more. Lower: a turn that is cut reaches the environment as it is.",
                   low=1, high=4096, unit="tokens", advanced=True, group="task")
OBSERVATION_LENGTH = Knob("observation_length", "Length limit of observations", 256, "A longer observation of the "
                          "environment is cut there. Higher: the model reads more. Lower: less compute.", low=1,
                          high=100_000, unit="characters", advanced=True, group="task")
OBSERVATION_ROLE = Knob("observation_role", "Role of observations", "user", "The role under which a chat template "
                        "writes an observation. user: as what the user says next. tool: as the result of a tool, where "
                        "the template has that role.",
                        choices=ROLES, advanced=True, group="task")


def limits(turns: int, tokens: int, observation: int = 256) -> tuple[Knob, ...]:
    """The knobs that every task with turns has, with these defaults."""
    return (MAX_TURNS.with_default(turns), TURN_TOKENS.with_default(tokens),
            OBSERVATION_LENGTH.with_default(observation), OBSERVATION_ROLE)


ROWS = (
    Task("guess", "Guess a number", "Find a hidden number in several turns: after each guess the environment says "
         "higher or lower.", "labcore.tasks.guess:Guess", _LOOPS, (
             Knob("numbers", "Numbers", 7, "The hidden number is one of 1 to this many. More: a harder task. Fewer: "
                  "an easier one. Halving finds one of 7 in 3 turns, one of 15 in 4.", low=2, high=999, safe=(3, 31),
                  group="task"),
             *limits(3, 3)),
         defaults={"max_new_tokens": 40, "sft_steps": 200, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="1-7? → 4 [higher] 6 [correct]", right="Solved",
         goal={"": "must find the hidden number, for example by {answer}, and earns 1 if it does"}),
)
