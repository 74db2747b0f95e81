"""All pages, declared once: the navigation, Home's doors and Help are drawn from this list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """The script `pages/KEY.py`, at the address /KEY. `words` say in Help what it is for; `door` is the door of Home
    that it stands in, where it is called `named` or by its title."""

    key: str
    title: str
    words: str = ""
    door: str = ""
    named: str = ""

    @property
    def script(self) -> str:
        """Its script, as Streamlit takes it."""
        return f"../pages/{self.key}.py"


PAGES = (
    Page("home", "Home", "A recorded run, and where to start."),
    Page("foundations", "Foundations", "Entropy, KL and estimates from samples: pictures to drag, with the exact value "
         "beside every estimate.", "Learn"),
    Page("surrogate", "Surrogate explorer", "The objectives of PPO and its relatives against the ratio, with a run's "
         "tokens; TRPO, PPO and an oversized step on a policy with exact values."),
    Page("lessons", "Lessons", "A claim, your prediction, a short run, and a verdict computed from its numbers.",
         "Learn"),
    Page("maze", "Maze", "Paint a world; see values, policies and single updates of every method from value iteration "
         "to PPO.", "Learn"),
    Page("cartpole", "CartPole", "Train networks to act, in CartPole or any Gymnasium world with discrete actions.",
         "Learn"),
    Page("llm", "LLM lab", "Train a language model by SFT, DPO or reinforcement, and change its knobs while it learns.",
         "Play"),
    Page("exact", "Exact", "The same algorithms on problems so small that every completion is known: estimates beside "
                           "exact values, and the path to the optimum π*.", "Play"),
    Page("compare", "Compare", "Overlaid runs and sweeps: which is better, at what cost, and with what evidence.",
         "Compare"),
    Page("studies", "Studies", "Claims of papers, tested here: ten sweeps with their cost, and a verdict by a fixed "
                               "rule.",
         "Compare"),
    Page("playground", "Playground", "Ask up to three checkpoints the same question; vote, and train on your votes.",
         "Play"),
    Page("runs", "Runs", "All runs: find, group, tag, delete and restore them, import other tools' curves, free disk "
                         "space.",
         "Compare", "All runs"),
    Page("help", "Help"),
)
