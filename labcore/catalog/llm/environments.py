"""The tasks with several turns: an environment answers each turn of the model (`labcore.tasks.environment`)."""

from __future__ import annotations

from labcore.catalog.knob import Knob
from labcore.catalog.task import TURNS, Task

_LOOPS = ("online", "sft")
ROLES = ("user", "tool")
MAX_TURNS = Knob(TURNS, "Turn limit", 8, "Largest number of turns in an episode. At this limit the episode ends even "
                 "if the environment has not ended it. More: longer episodes, so each step costs more. Fewer: the task "
                 "may become impossible.",
                 low=1, high=64, safe=(2, 16), unit="turns", group="task", aliases="max_assistant_turns "
                 "max_tool_calling_iterations")
TURN_TOKENS = Knob("turn_tokens", "Length limit of a turn", 8, "Longest turn of the model, in tokens. Higher: longer "
                   "turns are possible, so each step costs more. Lower: longer turns are cut, and the environment gets "
                   "the cut text.",
                   low=1, high=4096, unit="tokens", advanced=True, group="task")
OBSERVATION_LENGTH = Knob("observation_length", "Length limit of observations", 256, "Longer observations of the "
                          "environment are cut to this length. Higher: the model reads more. Lower: less "
                          "compute.", low=1,
                          high=100_000, unit="characters", advanced=True, group="task")
OBSERVATION_ROLE = Knob("observation_role", "Role of observations", "user", "Role that the chat template gives to "
                        "observations. user: the next message of the user. tool: the result of a tool, if the template "
                        "has this role.",
                        choices=ROLES, advanced=True, group="task")


def limits(turns: int, tokens: int, observation: int = 256) -> tuple[Knob, ...]:
    """The knobs that every task with turns has, with these defaults."""
    return (MAX_TURNS.with_default(turns), TURN_TOKENS.with_default(tokens),
            OBSERVATION_LENGTH.with_default(observation), OBSERVATION_ROLE)


# Their own sources read one answer. The steps of an episode are its turns.
_OF_ALGORITHM = {row: {"reward_source": "verifier"} for row in ("grpo_process", "gdpo")}

ROWS = (
    Task("guess", "Guess a number", "Find a hidden number in several turns. After each guess the environment says "
         "higher or lower.", "labcore.tasks.guess:Guess", _LOOPS, (
             Knob("largest", "Largest number", 7, "The hidden number lies between 1 and this. Higher: a harder task. "
                  "Lower: an easier task. Binary search finds one of 7 numbers in 3 turns, and one of 15 in "
                  "4.", low=2, high=999,
                  safe=(3, 31), group="task"),
             *limits(3, 3)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 40, "sft_steps": 200, "sft_target": 0.6},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="1-7? → 4 [higher] 6 [correct]", right="Solved",
         goal={"": "must find the hidden number, for example by {answer}, and earns 1 if it does"}),
    Task("lookup", "Arithmetic with a tool", "Answer a question with a calculator: a turn that contains "
         "<tool>expression</tool> gets the expression's value; any other turn is the "
         "answer.", "labcore.tasks.lookup:Lookup", _LOOPS,
         (
             Knob("tool_digits", "Digits", 1, "Digits of each number. More: harder without the tool, longer turns.",
                  low=1, high=4, safe=(1, 3), group="task"),
             *limits(3, 28)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 80, "sft_steps": 800, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "sequences_per_step": 128, "eval_every": 25},
         online={"learning_rate": 2e-3, "beta": 0.005},
         example="3*7+5= → <tool>3*7+5</tool> [26] 26 [right]", right="Solved",
         goal={"": "may call a calculator and must then answer, for example by {answer}, and earns 1 if the answer is "
               "right"}),
    Task("word_maze", "Maze in words", "Walk to the exit of a maze that is described only in words: which ways are "
         "open, and where the exit lies.", "labcore.tasks.word_maze:WordMaze", _LOOPS, (
             Knob("maze_size", "Size", 3, "Cells along each side. More: longer ways. Fewer: an easier "
                  "maze.", low=2, high=8,
                  safe=(2, 5), group="task"),
             *limits(6, 2)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 200, "sft_steps": 400, "sft_target": 0.5,
                                               "prompts_per_step": 16},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="open: n e; exit: ne → n [open: e s; exit: e] e [exit]", right="Solved",
         goal={"": "must walk to the exit, for example by {answer}, and earns 1 if it gets there"}),
    Task("twenty_questions", "Twenty questions", "Find an animal by one-word questions that are answered by yes or no. "
         "The first guess ends the episode.", "labcore.tasks.twenty_questions:TwentyQuestions", _LOOPS, (
             Knob("question_cost", "Cost of a question", 0.0, "Reward lost for each question before the guess. Higher: "
                  "fewer questions are worth asking. Lower: asking is "
                  "cheap.", low=0.0, high=1.0, safe=(0.0, 0.2), unit="reward",
                  group="task"),
             *limits(5, 9)),
         of_algorithm=_OF_ALGORITHM, defaults={"max_new_tokens": 80, "sft_steps": 400, "sft_target": 0.4},
         sft={"learning_rate": 3e-3, "eval_every": 25}, online={"learning_rate": 2e-3, "beta": 0.005},
         example="which animal? → fly? [yes] fur? [yes] wet? [no] bat! [right]", right="Solved",
         goal={"": "must find the animal, for example by {answer}, and earns 1 if the guess is right"}),
    Task("own_environment", "Your own environment", "A Python class that you write answers the model's turns. Name it "
         "by --environment FILE:Class, or put its file into the lab's folder "
         "rewards.", "labcore.tasks.own_environment:OwnEnvironment",
         _LOOPS, (
             Knob("environment", "Environment", "", "The Python class that plays an episode. It has the lab's methods, "
                  "those of TRL's environment_factory, or those of verl's BaseInteraction. Empty: an example that asks "
                  "for a number from 1 to 5.", forkable=True,
                  pick="labcore.tasks.own_environment:offered", group="task"),
             *limits(8, 64, 2000)),
         of_algorithm=_OF_ALGORITHM,
         defaults={"max_new_tokens": 512, "sft_steps": 0, "prompts_per_step": 8, "eval_prompts": 32},
         example="your first observation → a turn [your observation]", right="Solved",
         goal={"": "must act in your environment, and earns the rewards that it returns"}),
)
