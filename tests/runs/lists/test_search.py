"""The search: what each kind of term finds, and that what cannot be meant is one sentence."""

import time

import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import run_folder
from labcore.runs.lists.search import parse, search
from tests.every import every
from tests.runs.lists.tools import entry

ONE = entry("grpo-sort-1", tags=("paper", "β = 0"), note="Why it failed:\nthe Clip", star=True, sweep="sweep-9",
            created=time.time() - 3 * 86_400)
TWO = entry("ppo-sort-2", algorithm="PPO", keys=("ppo", "sort"), seed=2, state="failed", model="small", best=None,
            knobs={"beta": 0.0, "clip_low": 0.2, "normalise": True}, parent=("grpo-sort-1", 40))
OTHER = entry("imported-trl-3", kind="imported", state="imported", algorithm="TRL GRPO", task="", model="",
              keys=("", ""), seed=None, steps=None, seconds=None, knobs={}, size=100)
ALL = [ONE, TWO, OTHER]


@every("query, found", [
    ("", [ONE, TWO, OTHER]), ("   ", [ONE, TWO, OTHER]), ("grpo", [ONE, OTHER]), ("GRPO", [ONE, OTHER]),
    ("ppo-sort", [TWO]), ("grpo trl", [OTHER]), ("small", [TWO]), ("failed", [ONE, TWO]), ("paper", [ONE]),
    ("clip", [ONE]), ("sweep-9", [ONE]), ('"failed: the"', []), ('"why it"', [ONE]), ('"Sort letters"', [ONE, TWO]),
    ("-grpo", [TWO]), ("-", [ONE, TWO, OTHER]), ("sort -state=failed", [ONE]),
    ("beta=0.04", [ONE]), ("beta=.04", [ONE]), ("beta=4e-2", [ONE]), ("beta=0", [TWO]), ("beta=0.0", [TWO]),
    ("beta>0", [ONE]), ("beta>=0", [ONE, TWO]), ("beta<0.04", [TWO]), ("beta<=0.04", [ONE, TWO]),
    ("beta!=0", [ONE, OTHER]), ("-beta=0", [ONE, OTHER]), ("beta > 0", [ONE]), ("beta  >=  0 seed=2", [TWO]),
    ("β>0", [ONE]), ("β = 0.04", [ONE]), ("-β=0", [ONE, OTHER]), ("ε_low=0.2", [TWO]),
    ("clip_low=0.2", [TWO]), ("advantage=group_standardised", [ONE]), ("normalise=yes", [TWO]), ("normalise=1", [TWO]),
    ("normalise=off", []), ("algorithm=grpo", [ONE]), ("algorithm=PPO", [TWO]), ('algorithm="TRL GRPO"', [OTHER]),
    ("task=sort", [ONE, TWO]), ('task="sort letters"', [ONE, TWO]), ("kind=imported", [OTHER]), ("seed=0", [ONE]),
    ("tag=paper", [ONE]), ('tag="β = 0"', [ONE]), ("tags=paper", [ONE]), ("tag!=paper", [TWO, OTHER]),
    ("star=yes", [ONE]), ("star=no", [TWO, OTHER]), ("size>1", [ONE, TWO]), ("size<1", [OTHER]),
    ("duration>=12", [ONE, TWO]), ("best>0.5", [ONE, OTHER]), ("last=0.5", ALL), ("age<4", [ONE]),
    ("age>30", [TWO, OTHER]),
    ("parent=grpo-sort-1", [TWO]), ("state=finished", [ONE]), ("model!=tiny", [TWO, OTHER]),
])
def test_a_query_finds(query, found):
    assert search(ALL, query) == found


@pytest.mark.parametrize("query, words", [
    ("betta=0.1", "asks for 'betta', which is neither a knob nor a field: try beta=0.1"),
    ("reward>0.7", "neither a knob nor a field: try last>0.7"),
    ("xyzzy=grpo-sort-1", "neither a knob nor a field: try algorithm=grpo or beta>0.05"),
    ("beta>abc", "compares with 'abc', which is not a number: write for example beta>0.05"),
    ("β>abc", "write for example beta>0.05"),
    ("beta=", "lacks a value: write for example beta=0.1"),
    ("algorithm<grpo", "compares with 'grpo', which is not a number"),
    ('"open', "opens a quote that it does not close"), ('note="a', "opens a quote"),
])
def test_what_cannot_be_meant_is_one_sentence(query, words):
    with pytest.raises(LabError) as caught:
        parse(query)
    assert words in str(caught.value) and str(caught.value).endswith((".", '"two words".'))


@pytest.mark.parametrize("query", ["model=grpo-sort-ab12@200", "grpo-sort-ab12@200", "{path}", "model={path}"])
def test_a_model_is_found_by_its_name_and_by_its_folder(query):
    path = str(run_folder("grpo-sort-ab12") / "checkpoints" / "step-000200" / "policy")
    child = entry("ppo-sort-3", model=path)
    assert search([*ALL, child], query.format(path=path)) == [child]
