"""The tab Action space: which models it asks, its figure and its words, by hand."""

import pytest

from app.llm import action_figures as figures
from app.llm import action_tab as tab
from app.training.feed import Feed
from labcore.runs.store.rows import Step
from tests.app.asking import trained
from tests.app.seeding import html, ran, seed
from tests.words import says


def row(samples, *mass):
    return {"samples": samples, "mass": [*mass], "low": [each - 0.05 for each in mass],
            "high": [min(1.0, each + 0.05) for each in mass]}


def column(model, *rows, vocabulary=6):
    return {"model": model, "vocabulary": vocabulary, "temperature": 1.0, "samples": 10, "longest": len(rows),
            "positions": list(rows)}


def found(base="base:a", own="a@6"):
    return {"top": [1, 2, 4, 8, 16], "least": 8, "columns": [
        column(base, row(10, 0.4, 0.6, 0.9, 1.0, 1.0), row(10, 0.5, 0.7, 0.95, 1.0, 1.0),
               row(8, 0.8, 0.9, 1.0, 1.0, 1.0)),
        column(own, row(10, 0.7, 0.9, 1.0, 1.0, 1.0), row(10, 0.9, 0.95, 1.0, 1.0, 1.0))]}


TITLES = ("Base, by SFT", "GRPO, step 6")


def test_the_base_is_dashed_and_the_policy_solid_in_one_colour_per_k():
    drawn = figures.mass_figure(found(), TITLES, "light")
    lines = [trace for trace in drawn.data if trace.name]
    assert [trace.name for trace in lines] == [f"top {k}, {title}" for k in (1, 2, 4) for title in TITLES]
    assert [trace.line.dash for trace in lines] == ["dash", "solid"] * 3
    assert len({trace.line.color for trace in lines}) == 3 and lines[0].line.color == lines[1].line.color
    assert lines[0].x == (1, 2, 3) and lines[0].y == (0.4, 0.5, 0.8) and lines[1].x == (1, 2)
    band = drawn.data[0]
    assert band.y == pytest.approx((0.45, 0.55, 0.85, 0.75, 0.45, 0.35)) and band.fill == "toself"
    heights = [note.y for note in drawn.layout.annotations]
    assert {note.x for note in drawn.layout.annotations} == {3}, "where the base ends, which is longer here"
    assert heights[-1] == 0.8 or heights[0] == 0.8, "at the height of the line that is there"
    assert all(low - high >= 0.05 for high, low in zip(heights[1:], heights, strict=False)), "no name over another"
    alone = {**found(), "columns": found()["columns"][:1]}
    assert {trace.line.dash for trace in figures.mass_figure(alone, TITLES[:1], "dark").data if trace.name} == {"solid"}


def test_the_words_have_the_numbers_and_what_they_are_of():
    assert says(figures.words(found(), TITLES), "likeliest token", "Base", "0.40", "first", "0.63", "later",
                "GRPO, step 6", "0.70", "first", "0.90", "later")
    said = figures.about(found())
    assert "Estimated from 10 sampled completions of each model" in said and "temperature 1;" in said
    assert says(said, "Top 8 and 16", "vocabulary", "6 tokens")
    assert "fewer than 8 completions" not in said
    assert figures.table(found(), TITLES).count("<tr>") == 1 + 5


def test_the_checkpoint_nearest_to_the_step_is_asked_beside_the_base(page, asked, lab):
    run = trained(lab.store, steps=(0, 2, 5))
    asked.reply = lambda spec: found(*spec["models"])
    test = page("llm", run=run, tab="Action space")
    assert asked.asked == [], "nothing is computed that nobody asked for"
    press(test, "Compute")
    assert asked.asked[-1]["models"] == [f"base:{run}", f"{run}@5"]
    assert any("GRPO, step 5, the checkpoint nearest to step 6." in each.value for each in test.caption)
    assert "<td>GRPO, step 5</td>" in html(test)
    again = page("llm", run=run, tab="Action space")
    assert len(asked.asked) == 1 and "<td>GRPO, step 5</td>" in html(again), "what is there is shown at once"


def press(test, label):
    button, = [each for each in test.button if each.label == label]
    button.click()
    ran(test)


@pytest.mark.parametrize("metrics, words", [
    ({"completions/mean_length": 100.0, "tokens_per_second": 200.0},
     "of about 100 tokens: about 2 min 8 s at the speed of the run's last step."),
    ({"tokens_per_second": 200.0}, "of up to 8 tokens.")])
def test_the_cost_is_said_before(metrics, words, lab):
    run = lab.find(seed(lab.store, "finished"))
    feed = Feed(run.spec, [Step(1, 10, 0, 1.0, metrics)])
    assert tab.cost(run, feed, 2) == f"Two models write 128 completions each, {words}"
