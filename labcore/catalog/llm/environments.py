"""The tasks with several turns: an environment answers each turn of the model (`labcore.tasks.environment`)."""

from __future__ import annotations

from labcore.catalog.knob import Knob
from labcore.catalog.task import TURNS, Task

_LOOPS = ("online", "sft")
ROLES = ("user", "tool")
MAX_TURNS = Knob(TURNS, "Turn limit", 8, "Most turns of an episode, which ends there if the environment has not "
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


# Their own sources read one answer. The steps of an episode are its turns.
_OF_ALGORITHM = {row: {"reward_source": "verifier"} for row in ("grpo_process", "gdpo")}

ROWS = (
    Task("guess", "Guess a number", "Find a hidden number in several turns: after each guess the environment says "
         "higher or lower.", "labcore.tasks.guess:Guess", _LOOPS, (
             Knob("largest", "Largest number", 7, "The hidden number is one of 1 to this. Higher: a harder task. "
                  "Lower: an easier one. Halving finds one of 7 in 3 turns, one of 15 in 4.", low=2, high=999,
                  safe=(3, 31), group="task"),
             *limits(3, 3)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 40, "sft_steps": 200, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="1-7? → 4 [higher] 6 [correct]", right="Solved",
         goal={"": "must find the hidden number, for example by {answer}, and earns 1 if it does"}),
    Task("lookup", "Arithmetic with a tool", "Answer with the help of a calculator: a turn that holds "
         "<tool>expression</tool> gets its value, any other turn is the answer.", "labcore.tasks.lookup:Lookup", _LOOPS,
         (
             Knob("tool_digits", "Digits", 1, "Digits of each number. More: harder without the tool, longer turns.",
                  low=1, high=4, safe=(1, 3), group="task"),
             *limits(3, 28)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 80, "sft_steps": 800, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "sequences_per_step": 128, "eval_every": 25},
         online={"learning_rate": 2e-3, "beta": 0.005},
         example="3*7+5= → <tool>3*7+5</tool> [26] 26 [right]", right="Solved",
         goal={"": "may call a calculator and must then answer, for example by {answer}, and earns 1 if right"}),
    Task("word_maze", "Maze in words", "Walk to the exit of a maze that is only told in words: which ways are open, "
         "and where the exit lies.", "labcore.tasks.word_maze:WordMaze", _LOOPS, (
             Knob("maze_size", "Size", 3, "Cells of a side. More: longer ways. Fewer: an easier maze.", low=2, high=8,
                  safe=(2, 5), group="task"),
             *limits(6, 2)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 200, "sft_steps": 400, "sft_target": 0.5},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="open: n e; exit: ne → n [open: e s; exit: e] e [exit]", right="Solved",
         goal={"": "must walk to the exit, for example by {answer}, and earns 1 if it gets there"}),
    Task("twenty_questions", "Twenty questions", "Find an animal by questions of one word, answered by yes or no; the "
         "first guess ends the episode.", "labcore.tasks.twenty_questions:TwentyQuestions", _LOOPS, (
             Knob("question_cost", "Cost of a question", 0.0, "Reward that each turn before the guess costs. Higher: "
                  "few questions pay. Lower: asking is cheap.", low=0.0, high=1.0, safe=(0.0, 0.2), unit="reward",
                  group="task"),
             *limits(5, 9)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 80, "sft_steps": 400, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="which animal? → fly? [yes] fur? [yes] wet? [no] bat! [right]", right="Solved",
         goal={"": "must find the animal, for example by {answer}, and earns 1 if the guess is right"}),
    Task("own_environment", "Your own environment", "A Python class of yours that answers the model's turns, by "
         "--environment FILE:Class, or in the lab's folder rewards.", "labcore.tasks.own_environment:OwnEnvironment",
         _LOOPS, (
             Knob("environment", "Environment", "", "The Python class that plays an episode: in the lab's shape, in "
                  "that of TRL's environment_factory, or in that of verl's BaseInteraction. Empty: an example, a "
                  "number from 1 to 5.", forkable=True,
                  pick="labcore.tasks.own_environment:offered", group="task"),
             *limits(8, 64, 2000)),
         of_algorithm=_OF_ALGORITHM,
         defaults={"max_new_tokens": 512, "sft_steps": 0, "prompts_per_step": 8, "eval_prompts": 32},
         example="your first observation → a turn [your observation]", right="Solved",
         goal={"": "must act in your environment, and earns what it gives"}),
)
