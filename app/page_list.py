"""The pages, declared once: the navigation, Home and Help are drawn from this list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """The script `pages/KEY.py`, at the address /KEY.

    `words` describe its purpose in one line, `section` names its menu; a page without a section has its own place in
    the navigation.
    """

    key: str
    title: str
    words: str
    section: str = ""
    icon: str = ":material/article:"

    @property
    def script(self) -> str:
        """Its script, as Streamlit takes it."""
        return f"../pages/{self.key}.py"


@dataclass(frozen=True)
class Section:
    """A menu of the navigation and a card of Home."""

    title: str
    words: str

    @property
    def pages(self) -> Iterator[Page]:
        """Its pages in their order."""
        return (page for page in PAGES if page.section == self.title)


SECTIONS = (
    Section("Learn", "Explore ideas in pictures, then predict the result of a run and check it."),
    Section("Train", "Start a run, turn its knobs, see why the curve moved."),
    Section("Compare", "Which algorithm or knob is better, and how sure is that?"),
)
PAGES = (
    Page("home", "Home", "A recorded run, and where to start.", icon=":material/home:"),
    Page("foundations", "Foundations", "Entropy, KL and estimators as interactive pictures.",
         "Learn", ":material/category:"),
    Page("surrogate", "Surrogate explorer", "PPO's clip and its relatives, on your run's tokens.",
         "Learn", ":material/show_chart:"),
    Page("lessons", "Lessons", "Predict the result of a short run, then check it.",
         "Learn", ":material/school:"),
    Page("llm", "LLM lab", "Train a language model by SFT, DPO or RL.",
         "Train", ":material/chat:"),
    Page("maze", "Maze", "Paint a world; see its values and single updates.",
         "Train", ":material/grid_on:"),
    Page("cartpole", "CartPole", "Networks that learn to act in Gymnasium environments.",
         "Train", ":material/sports_esports:"),
    Page("exact", "Exact", "Problems so small that every number is exact.",
         "Train", ":material/function:"),
    Page("watch", "Watch", "See what TRL, verl, OpenRLHF or your own loop is doing.",
         "Train", ":material/visibility:"),
    Page("compare", "Compare", "Runs and sweeps overlaid: quality, cost, evidence.",
         "Compare", ":material/stacked_line_chart:"),
    Page("studies", "Studies", "Claims of papers, tested by a fixed rule.",
         "Compare", ":material/science:"),
    Page("playground", "Playground", "Ask three checkpoints the same question; vote.",
         "Compare", ":material/forum:"),
    Page("runs", "Runs", "All runs: find, group, tag, delete and restore them; import other tools' curves.",
         icon=":material/list:"),
    Page("help", "Help", "Questions and answers, words, metrics, knobs, keys, commands and settings.",
         icon=":material/help:"),
)
