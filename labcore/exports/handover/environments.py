"""The environment of a run as stand-alone Python code, for tools that play episodes with code of the user's.

It defines `Game`, with `reset(row)` and `step(text)` as in the lab, and `problems(count, seed)`: the rows of episodes
as JSON. Rows are drawn as the lab draws them, with other random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from types import ModuleType

from labcore.errors import LabError
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.remarks import comment
from labcore.exports.handover.sources import source
from labcore.tasks import countdown, guess, lookup, own_environment, twenty_questions, word_maze
from labcore.tasks.task import make_task

_LIMITS = '''
MAX_TURNS, TURN_TOKENS = {max_turns}, {turn_tokens}  # the most turns of an episode, and tokens of a turn
OBSERVATION_LENGTH = {observation_length}  # longer observations are cut to so many characters
'''
_BEGIN = '''

Row = dict[str, Any]


class Step(NamedTuple):
    """The environment's answer to a turn."""

    observation: str
    reward: float
    done: bool
'''
_PROBLEMS = '''

def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """The rows of episodes as JSON; the code below replaces each of these prompts by the first observation."""
    return [{"prompt": json.dumps(row)} for row in rows(count, seed)]
'''
_TOOLS = '''

def problems(count: int, seed: int = 0) -> list[Row]:
    """Rows of your class; the text that its reset returns is appended to the prompt."""
    return [{"prompt": "", **row} for row in rows(count, seed)]
'''
_GUESS = '''
Game = NumberGame


def rows(count: int, seed: int = 0) -> list[Row]:
    """Hidden numbers from 1 to {largest}."""
    rng = random.Random(seed)
    return [{{"secret": rng.randint(1, {largest}), "highest": {largest}}} for _ in range(count)]
'''
_LOOKUP = '''
Game = Calculator


def rows(count: int, seed: int = 0) -> list[Row]:
    """Questions a*b+c with numbers of at most {tool_digits} digits."""
    rng = random.Random(seed)
    drawn = ([rng.randrange(2, 10**{tool_digits}) for _ in range(3)] for _ in range(count))
    return [{{"question": f"{{a}}*{{b}}+{{c}}"}} for a, b, c in drawn]
'''
_WORD_MAZE = '''
Game, SIZE = Corridors, {maze_size}


def rows(count: int, seed: int = 0) -> list[Row]:
    """Mazes of SIZE × SIZE cells, whose exit can be reached within MAX_TURNS."""
    rng, found = random.Random(seed), []
    cells = [(x, y) for y in range(SIZE) for x in range(SIZE)]
    between = [((x, y), near) for x, y in cells for near in ((x + 1, y), (x, y + 1)) if near in cells]
    while len(found) < count:
        walls = [pair for pair in between if rng.random() < WALLED]
        start, target = rng.sample(cells, 2)
        if distance(SIZE, walls, start, target) <= MAX_TURNS:
            found.append({{"size": SIZE, "walls": walls, "start": start, "exit": target}})
    return found
'''
_TWENTY_QUESTIONS = '''
Game = Questions


def rows(count: int, seed: int = 0) -> list[Row]:
    """Animals, each as likely as the others."""
    rng = random.Random(seed)
    return [{{"animal": rng.choice(list(ANIMALS)), "cost": {question_cost}}} for _ in range(count)]
'''
_EXAMPLE = '''

class Game:
    """Find a number from 1 to 5."""

    def reset(self, row: Row) -> str:
        self.number = row["number"]
        return "1-5?"

    def step(self, text: str) -> Step:
        return Step("yes", 1.0, True) if text == str(self.number) else Step("no", 0.0, False)


def rows(count: int, seed: int = 0) -> list[Row]:
    """Hidden numbers."""
    rng = random.Random(seed)
    return [{"number": rng.randint(1, 5)} for _ in range(count)]
'''
_OWN_ROWS = '''

def rows(count: int, seed: int = 0) -> list[Row]:
    """Rows of your class at random, each with a seed of its own."""
    rng, known = random.Random(seed), [*(getattr(Own, "rows", None) or [{}])]
    return [{"seed": rng.randrange(2**31), **rng.choice(known)} for _ in range(count)]
'''
_OF_VERL = '''

class Game:
    """Your class, which has verl's methods, as reset and step."""

    def reset(self, row: Row) -> str:
        self.own, self.messages = Own({}), [{"role": "user", "content": row["prompt"]}]
        given = {key: value for key, value in row.items() if key not in ("seed", "prompt")}
        self.instance = asyncio.run(self.own.start_interaction(None, **given))
        return row["prompt"]

    def step(self, text: str) -> Step:
        self.messages.append({"role": "assistant", "content": text})
        done, said, reward, *_ = asyncio.run(self.own.generate_response(self.instance, [*self.messages]))
        self.messages.append({"role": "user", "content": said})
        return Step(said, reward, done)
'''
# Of each task the parts of the lab's modules that play an episode, and the code that draws rows.
_GAMES: Mapping[str, tuple[Mapping[ModuleType, tuple[str, ...]], str]] = {
    "labcore.tasks.guess:Guess": ({guess: ("HIGHER", "NumberGame")}, _GUESS),
    "labcore.tasks.lookup:Lookup": ({countdown: ("DEEPEST", "value", "_Reader"), lookup: (
        "LONGEST", "BAD_CALL", "_CALL", "_TOKEN", "Calculator", "calculated")}, _LOOKUP),
    "labcore.tasks.word_maze:WordMaze": ({word_maze: (
        "WAYS", "WALLED", "WALL", "Place", "Corridors", "distance")}, _WORD_MAZE),
    "labcore.tasks.twenty_questions:TwentyQuestions": ({twenty_questions: (
        "PROPERTIES", "ANIMALS", "ASKED", "Questions")}, _TWENTY_QUESTIONS)}


def code(plan: Plan) -> str:
    """The environment of the plan's run. Raises LabError if a class of the user's cannot be read, or is no environment
    that other tools play turn by turn."""
    knobs = plan.spec.knobs
    if plan.spec.task_row.source.endswith(":OwnEnvironment"):
        body = _own(plan)
    elif plan.spec.task_row.source in _GAMES:
        parts, drawn = _GAMES[plan.spec.task_row.source]
        body = "".join(source(module, *names) for module, names in parts.items()) + "\n" + drawn.format(**knobs)
    else:
        raise LabError(f"There is no script for the task {plan.spec.task_row.label}, because the lab cannot write its "
                       "environment as stand-alone code: use `own_environment` with a file of yours.")
    return _LIMITS.format(**knobs) + _BEGIN + body + (_TOOLS if has_tools(plan) else _PROBLEMS)


def has_tools(plan: Plan) -> bool:
    """Whether the environment is a class of the user's whose methods the model calls as tools, as TRL has them."""
    return shape(plan) is own_environment.Trl


def shape(plan: Plan) -> type[own_environment.Shape] | None:
    """The shape of the user's class: its methods are the lab's, TRL's or verl's. None of the lab's own environments.
    Raises LabError if the class cannot be read, or lacks methods."""
    if not plan.get(own_environment.KNOB):
        return None
    task = make_task(plan.spec.task_row, plan.spec.knobs, plan.spec.data)
    assert isinstance(task, own_environment.OwnEnvironment), "no other task has that knob"
    return task.shape


def imported(plan: Plan) -> str:
    """The user's class, from a file that has to stand beside the script."""
    file, _, name = str(plan[own_environment.KNOB]).rpartition(" ")[0].rpartition(":")
    said = comment(f"Your own environment: put {PurePath(file).name} beside this script.")
    return f"\nfrom importlib import import_module\n\n{said}\nOwn = import_module({PurePath(file).stem!r}).{name}\n"


def _own(plan: Plan) -> str:
    found = shape(plan)
    if found is None:
        return _EXAMPLE
    played = {own_environment.Verl: _OF_VERL, own_environment.Lab: "Game = Own\n"}.get(found, "")
    return imported(plan) + played + _OWN_ROWS
