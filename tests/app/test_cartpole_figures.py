"""The figures of classic runs: what is drawn where, with units, and what is said of it."""

from types import SimpleNamespace

import pytest

from app import charts
from app.cartpole import figures, own_tabs
from labcore.catalog.cartpole import ALGORITHMS
from labcore.catalog.knob import Knob
from labcore.catalog.metrics import METRICS

MEASURED = {"total_return": 400.0, "reward_to_go": 100.0, "baseline": 20.0, "advantage": 4.0}


@pytest.mark.parametrize("kind", ["light", "dark"])
@pytest.mark.parametrize("figure", [
    lambda kind: figures.value_figure([1.0, 2.0], [1.5, 1.0], kind),
    lambda kind: figures.variance_figure(MEASURED, "advantage", kind),
    lambda kind: figures.gae_figure(0.98, 0.8, kind)])
def test_every_axis_has_a_name(figure, kind):
    layout = figure(kind).layout
    assert layout.xaxis.title.text and layout.yaxis.title.text


def test_the_diagonal_is_where_value_and_return_agree_on_one_scale():
    figure = figures.value_figure([0.0, 10.0], [5.0, 5.0])
    diagonal, dots = figure.data
    assert "λ-return" in figure.layout.yaxis.title.text and "critic" in figures.LAMBDA_RETURN
    assert diagonal.x == diagonal.y and figure.layout.xaxis.range == figure.layout.yaxis.range
    assert list(dots.x) == [0.0, 10.0] and list(dots.y) == [5.0, 5.0]


@pytest.mark.parametrize("share, said", [(0.9, "most"), (0.5, "some"), (0.0, "constant"),
                                         (-1.0, "the critic is wrong or the λ-returns hardly vary")])
def test_explained_variance_in_words(share, said):
    assert said in figures.value_words(share)


def test_the_choices_of_psi_are_the_knob_s_and_have_their_metrics():
    psi: Knob = ALGORITHMS["reinforce"].knob("psi")
    assert tuple(figures.PSI) == psi.choices
    assert all(f"gradient_variance/{name}" in METRICS for name in figures.PSI)


def test_the_bars_are_on_a_log_axis_and_the_choice_in_use_is_filled():
    figure = figures.variance_figure({**MEASURED, "baseline": 0.0}, "reward_to_go")
    bars, = figure.data
    assert figure.layout.xaxis.type == "log" and list(bars.x) == [400.0, 100.0, 4.0]
    assert list(bars.marker.opacity) == [0.35, 1.0, 0.35]


def test_the_words_name_what_is_compared():
    assert "than Ψ2 (reward-to-go)" in figures.variance_words({"reward_to_go": 100.0, "advantage": 4.0})
    assert figures.variance_words({"baseline": 1.0, "advantage": 4.0}).endswith("Ψ3 (reward-to-go − V).")


def test_gae_weights_fall_by_gamma_lambda():
    bars, = figures.gae_figure(0.9, 0.5).data
    assert bars.y[0] == 1 and bars.y[2] == pytest.approx(0.45**2) and len(bars.y) == 31
    assert "whole episode" in figures.gae_words(1.0, 1.0) and "one step" in figures.gae_words(0.9, 0.0)


def test_the_unit_of_the_kl_is_the_run_s():
    line = {"alpha": [0, 1], "cpi": [0, 1], "clip": [0, 1], "kl_penalised": [0, 1], "kl": [0, 1]}
    assert charts.line_figure(line, kl_unit="nats").layout.yaxis2.title.text == "KL, nats"


@pytest.mark.parametrize("algorithm, tabs", [
    ("ppo", ["Policy", "Surrogate", "Value"]), ("trpo", ["Policy", "Surrogate", "Value"]), ("a2c", ["Policy", "Value"]),
    ("reinforce", ["Policy", "Value", "Variance"]), ("dqn", ["Policy"])])
def test_a_method_has_the_tabs_that_it_has_numbers_for(algorithm, tabs):
    run = SimpleNamespace(spec=SimpleNamespace(row=ALGORITHMS[algorithm], task="CartPole-v1"))
    assert [name for name, (_, fits) in own_tabs.TABS.items() if fits(run)] == tabs
