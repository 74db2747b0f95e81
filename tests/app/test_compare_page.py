"""The Compare page: what a link shows, what a choice puts into the link, and what does not fit, in a sentence each."""

import json

import pytest

from app.compare import data, export, run_picker, table, verdict
from app.compare.place import Place
from app.widget_state import KEPT
from labcore.catalog import panels
from labcore.errors import LabError
from labcore.runs.imports import imported
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.sweep import queue
from tests.analysis.compare import tools
from tests.app.asking import Answering, trained
from tests.app.seeding import html, link, ran, seed
from tests.every import now
from tests.words import says


def charts(test) -> dict:
    """What the compare charts were given."""
    found = {}
    for element in test.get("bidi_component"):
        data = json.loads(element.proto.json or "[{}]")[0]
        if data.get("panels"):
            found["main" if data["main"] else "small"] = data
    return found


def box(test, label: str):
    """The box of a choice."""
    return next(each for each in test.selectbox if each.label == label)


def views(test) -> list[str]:
    """What the first control offers."""
    return [option.content for option in test.get("button_group")[0].proto.options]


def warnings(test) -> list[str]:
    return [element.value for element in test.warning]


@pytest.mark.parametrize("of_link, axis", [
    ({}, "tokens"), ({"by": "seconds"}, "seconds"), ({"by": "seconds", "x": "step"}, "step"),
    *(pytest.param({"by": by}, "tokens", marks=pytest.mark.long) for by in ("final", "env_steps"))])
def test_the_curves_are_drawn_along_what_is_made_equal_unless_an_axis_is_chosen(page, lab, pair, of_link, axis):
    drawn = charts(page("compare", runs=",".join(pair), **of_link))
    assert drawn["main"]["axis"] == drawn["small"]["axis"] == axis


def test_a_chart_of_small_shares_is_as_high_as_these(page, lab, pair, monkeypatch):
    monkeypatch.setattr(panels, "SMALL", {"kl"})
    scales = {each["key"]: each["scale"] for each in charts(page("compare", runs=",".join(pair)))["small"]["panels"]}
    assert scales["kl"] == "small rate" and scales["memory"] == "linear"


def test_nothing_chosen_offers_what_there_is(page, lab, pair):
    test = page("compare")
    assert "GRPO, RLOO" in html(test) or "RLOO, GRPO" in html(test)
    test.button(key="compare:task:sort").click()
    assert set(link(ran(test))["runs"].split(",")) == set(pair)


@pytest.mark.parametrize("view", now(["curves", "table", "plane"], "curves"))
def test_where_the_runs_stand_by_a_cost_is_found_once_for_all_of_a_page(view, page, lab, pair, monkeypatch):
    found, standing = [], verdict.standing
    monkeypatch.setattr(verdict, "standing", lambda *of: found.append(of) or standing(*of))
    page("compare", runs=",".join(pair), view=view)
    assert sorted(of[2] for of in found) == ["", "seconds", "updates"], "the usual one, then the others"


def test_an_empty_lab_leads_to_an_action(page, lab):
    test = page("compare")
    assert any(button.label.startswith("Start") and not button.disabled for button in test.button)
    assert not test.multiselect[0].options


def test_the_box_holds_what_the_link_says_and_writes_what_is_chosen(page, lab, pair):
    test = page("compare", runs=f"{pair[0]},{pair[3]}")
    box = next(each for each in test.multiselect if each.label == "Runs")
    assert box.value == [pair[0], pair[3]]
    assert "RLOO sort #6 · SFT steps 0 · seed 2 · finished" in box.options
    box.set_value([pair[0], pair[3], pair[4]])
    assert link(ran(test))["runs"] == f"{pair[0]},{pair[3]},{pair[4]}"


def test_the_other_seeds_are_one_click_away(page, lab, pair):
    tools.stored(lab.store, [0.5] * 3, seed=9, changes=[(2, "beta", 0.3)])  # changed mid-run: another setting
    test = page("compare", runs=pair[0])
    assert test.button(key="other_seeds").label == "Add 2 other seeds"
    test.button(key="other_seeds").click()
    assert sorted(link(ran(test))["runs"].split(",")) == sorted(pair[:3])
    assert not any(button.key == "other_seeds" for button in test.button)


def test_the_parent_of_a_fork_is_one_click_away(page, lab, pair):
    child = tools.stored(lab.store, [0.5] * 9, parent=(pair[0], 4), beta=0.3)
    test = page("compare", runs=child)
    test.button(key="parents").click()
    assert link(ran(test))["runs"] == f"{pair[0]},{child}"
    assert "1:root" in charts(test)["main"]["panels"][0]["lines"]
    assert not any(button.key == "parents" for button in test.button)


def test_a_run_that_is_not_there_is_said_and_the_rest_is_shown(page, lab, pair):
    test = page("compare", runs=f"gone,{pair[0]}", x="days", metric="nonsense")
    assert len(warnings(test)) == 3, warnings(test)
    assert "There is no run “gone” here" in warnings(test)[2] and "metric='nonsense'" in warnings(test)[1]
    assert [group["label"] for group in charts(test)["main"]["groups"]] == ["GRPO"]


def test_more_settings_than_fit(page, lab):
    runs = [tools.stored(lab.store, [0.5] * 2, beta=0.01 * number) for number in range(9)]
    test = page("compare", runs=",".join(runs))
    assert len(charts(test)["main"]["groups"]) == 8
    assert [says(each, "8 settings", "GRPO sort #9 is left out") for each in warnings(test)] == [True]


def test_a_damaged_import_is_said_and_the_rest_is_shown(page, lab, pair):
    kept, = imported.keep(lab.store, "log.csv", b"step,reward\n1,0.5\n2,0.75\n", "TRL")
    imported.place(kept.id).joinpath("rows.csv").unlink()
    test = page("compare", runs=f"{kept.id},{pair[0]}")
    assert "has no rows.csv that can be read" in warnings(test)[0] and len(charts(test)["main"]["groups"]) == 1
    test = page("compare", runs=kept.id)
    assert "has no rows.csv that can be read" in warnings(test)[0] and not charts(test)


def test_an_imported_run_lies_beside_ours(page, lab, pair):
    kept, = imported.keep(lab.store, "log.csv", b"step,reward\n1,0.5\n2,0.75\n", "TRL")
    data = charts(page("compare", runs=f"{pair[0]},{kept.id}"))["main"]
    assert [group["label"] for group in data["groups"]] == ["GRPO", "TRL (imported)"]
    assert data["panels"][0]["lines"]["1:line"]["y"] == [0.5, 0.75]


def test_the_metric_of_a_mixed_comparison_is_one_that_all_have(page, lab):
    both = seed(lab.store, "finished")
    dpo = lab.store.create(make(algorithm_key="dpo", task_key="sort", steps=10), mine=True)
    lab.store.set_state(dpo, "running")
    lab.store.append(dpo, Record(1, 100, {"exact_match": 0.5, "updates": 1.0}), 1.0)
    panel = charts(page("compare", runs=f"{both},{dpo}"))["main"]["panels"][0]
    assert panel["key"] == "exact_match" and {"0:line", "1:line"} <= set(panel["lines"])
    mixed = page("compare", runs=f"{both},{dpo}", metric="reward")
    notes = [group["note"].split(" · ")[0] for group in charts(mixed)["main"]["groups"]]
    assert notes == ["1 seed: not evidence", "no reward"]
    shown = html(page("compare", runs=f"{both},{dpo}", metric="reward", view="table"))
    assert says(shown, "<li>DPO sort #2", "no reward", "</li>")
    none = page("compare", runs=dpo, metric="reward", view="table")
    assert says(none.info[0].value, "None", "reward", "Choose another metric")
    panel = charts(page("compare", runs=f"{both},{tools.stored(lab.store, [0.5] * 3)}"))["main"]["panels"][0]
    assert panel["key"] == "reward"


def test_every_choice_is_in_the_link_and_the_link_shows_it_again(page, lab, pair):
    test = page("compare", runs=",".join(pair))
    box(test, "Metric").set_value("kl")
    box(test, "Baseline").set_value("RLOO")
    test.slider[0].set_value(0.5)
    test.toggle[0].set_value(True)
    test = ran(test)
    address = link(test)
    assert address == {"runs": ",".join(pair), "metric": "kl", "baseline": pair[3], "smooth": "0.5", "traces": "1"}
    again = page("compare", **address)
    panel = charts(again)["main"]["panels"][0]
    assert panel["key"] == "kl" and panel["strip"] == "Difference: minus RLOO, nats/token"
    assert {"0:gap", "0:line", "0:raw", "0:band"} <= set(panel["lines"])
    assert sum(":seed:" in key for key in panel["lines"]) == 6
    assert [group["bold"] for group in charts(again)["main"]["groups"]] == [False, True]


def test_two_choices_before_the_page_is_drawn_again_are_both_in_the_link(page, lab, pair):
    test = page("compare", runs=",".join(pair))
    test.slider[0].set_value(0.5)
    test.toggle[0].set_value(True)
    assert link(ran(test)) == {"runs": ",".join(pair), "smooth": "0.5", "traces": "1"}
    assert test.slider[0].value == 0.5 and test.toggle[0].value


def test_widgets_with_other_options_keep_one_name_in_the_session(page, lab, pair):
    test = page("compare", runs=pair[0])
    names = {*test.session_state[KEPT]}
    tools.stored(lab.store, [0.5] * 3, algorithm="ppo")  # one more to choose
    test.multiselect[0].set_value([pair[0], pair[3]])
    ran(test)
    assert {*test.session_state[KEPT]} - names == {"compare:baseline", "compare:by"}  # one run has none


def test_a_baseline_that_is_not_compared(page, lab, pair):
    test = page("compare", runs=",".join(pair[:3]), baseline=pair[4])
    assert "The baseline RLOO sort #5 is not among the compared runs" in warnings(test)[0]


def test_the_table_names_the_winner_and_the_differences(page, lab, pair):
    test = page("compare", runs=",".join(pair), view="table")
    shown = html(test)
    assert says(shown, "Per token, per update and per second GRPO", "ahead") and "GRPO beats it, P 1.00" in shown
    assert "at 800 tokens each" in shown and "91.0 % [" in shown
    assert '<td title="grpo">GRPO</td>' in shown and '<td title="k3">k3: never negative</td>' in shown
    assert "<th>Algorithm</th>" in shown and "<th>Seed</th>" not in shown
    assert "508 MB" in shown and "policy + reference" in shown
    assert len(test.get("download_button")) == 5


def test_people_read_signs_and_files_have_keys(page, lab):
    low, high = (tools.stored(lab.store, [0.5] * 3, beta=beta) for beta in (0.02, 0.3))
    moved = tools.stored(lab.store, [0.5] * 3, beta=0.3, changes=[(1, "clip_low", 0.3)])
    test = page("compare", runs=f"{low},{high},{moved}", view="table")
    shown = html(test)
    assert "GRPO β 0.02" in shown and "<th>KL coefficient β</th>" in shown and "ε_low=0.3 after step 1" in shown
    assert "beta" not in shown and "clip_low" not in shown
    sources, _ = data.find(Place(runs=(low, high)))
    chosen, _ = data.choose(Place(runs=(low, high)), sources)
    assert [group.label for group in chosen.groups] == ["GRPO β 0.02", "GRPO β 0.3"]
    for made in (export.table(table.table_of(chosen)[1], chosen), export.plotted(chosen), export.rows(chosen)):
        assert "GRPO beta 0.3" in made.decode() and "β" not in made.decode()


def test_nothing_is_said_of_the_end_while_a_run_goes(page, lab, pair):
    tools.stored(lab.store, [0.1], seed=3, algorithm="rloo", state="running")
    test = page("compare", runs=",".join([*pair, lab.store.runs("running")[0].id]), view="table")
    shown = html(test)
    assert says(shown, "So far", "per token, per update and per second GRPO")
    assert says(shown, "Not final", "6 of 7 runs") and "<th>So far</th>" in shown
    assert "at the end" not in shown.lower()


def test_queued_runs_say_which_runs_hold_the_places(page, lab):
    waiting, holder = lab.store.create(make(algorithm_key="grpo", task_key="sort")), seed(lab.store)
    lab.store.set_waiting({waiting: 1})
    why = "Waiting for a free place: GRPO sort #2 (running) holds it"
    assert html(page("compare", runs=waiting)).count(why) == 1, "before the first steps"
    assert html(page("compare", runs=f"{waiting},{holder}")).count(why) == 1, "beside a run that has begun"


def test_a_table_of_nothing_is_a_sentence(page, lab):
    run = tools.stored(lab.store, [], state="running")
    test = page("compare", runs=run, view="table")
    assert "nothing to compare yet" in test.info[0].value


def test_the_plane_is_offered_where_there_is_a_reference(page, lab, pair):
    test = page("compare", runs=",".join(pair), view="plane")
    panel, = charts(test)["main"]["panels"]
    assert "Two metrics" in views(test)
    assert panel["plane"] and panel["axis"] == "KL to the reference, nats/token"
    assert panel["lines"]["0:centre"]["y"] == [pytest.approx(91)] and "91.0 %" in html(test)
    assert panel["yTitle"] == "Reward (exact match), % of completions" and "GRPO 91.0 % at 0.1" in panel["alt"]
    assert max(panel["lines"]["0:path:" + pair[0]]["y"]) > 1 and "91.0 % at" in panel["lines"]["0:centre"]["text"][0]
    assert sorted(panel["lines"]["1:ends"]["x"]) == pytest.approx([0.1, 0.11, 0.12])
    assert "front" not in panel["lines"] and "Pareto-optimal" in html(test)  # GRPO alone is on it: no line
    assert "dotted" not in panel["caption"] + " ".join(each.value for each in test.caption)
    assert panel["range"]["x"] == pytest.approx([-0.02 * 0.12, 1.08 * 0.12])  # the costliest run ends at 0.12
    plain = tools.stored(lab.store, [0.5] * 3)
    panel, = charts(page("compare", runs=plain, view="plane"))["main"]["panels"]
    assert panel["plane"] and panel["yTitle"].startswith("Reward (exact"), "without a KL: the first two"
    assert "KL" not in panel["title"]


def test_any_metric_can_be_drawn_along_any_axis_or_against_any_other(page, lab, pair):
    test = page("compare", runs=",".join(pair))
    across = box(test, "Horizontal axis")
    assert {option for option in across.options if option.startswith("over")} == {
        "over tokens", "over updates", "over steps", "over seconds"}
    across.set_value("memory")
    test = ran(test)
    panel, = charts(test)["main"]["panels"]
    assert (panel["yTitle"], panel["axis"]) == (
        "Reward (exact match), % of completions", "Memory, MB") and link(test)["x"] == "memory"
    assert "to the left is better" in " ".join(each.value for each in test.caption), "less memory is"
    box(test, "Metric").set_value("updates")
    test = ran(test)
    assert charts(test)["main"]["panels"][0]["yTitle"].startswith("Updates")
    assert "is better" not in " ".join(each.value for each in test.caption), "no direction of updates is"
    box(test, "Horizontal axis").set_value("seconds")
    test = ran(test)
    assert link(test) == {"runs": ",".join(pair), "metric": "updates", "x": "seconds"}, "the view of curves again"


def test_the_small_charts_are_those_that_are_chosen(page, lab, pair):
    usual = charts(page("compare", runs=",".join(pair)))["small"]["panels"]
    assert [panel["key"] for panel in usual] == ["kl", "memory"]
    test = page("compare", runs=",".join(pair), charts="memory,updates")
    assert [panel["key"] for panel in charts(test)["small"]["panels"]] == ["memory", "updates"]
    next(each for each in test.multiselect if each.label == "Small charts").set_value(["updates"])
    assert link(ran(test))["charts"] == "updates"


def test_a_project_is_compared_as_a_whole_and_given_on_the_page(page, lab, pair):
    lab.store.mark(pair[5], project="my paper")
    test = page("compare", runs=",".join(pair[:2]))
    box(test, "Project").set_value("my paper").run()
    assert [bool(lab.store.run(run).project) for run in pair] == [True, True, False, False, False, True]
    test = page("compare", project="my paper")
    assert [group["label"] for group in charts(test)["main"]["groups"]] == ["GRPO", "RLOO"]
    assert "3 runs" in html(test)
    assert "project:my paper" in " ".join(each.key for each in page("compare").button if each.key)


def test_a_project_has_its_imported_metrics_and_its_runs_behind_any_number_of_others(page, lab, pair, monkeypatch):
    monkeypatch.setattr(data, "MOST_RUNS", 2)
    kept, = imported.keep(lab.store, "log.csv", b"step,reward\n1,0.5\n2,0.75\n", "TRL")
    for name in (pair[0], kept.id, lab.store.create(make(algorithm_key="grpo", task_key="sort"))):
        lab.store.mark(name, project="my paper")
    main = charts(page("compare", project="my paper"))["main"]
    assert [group["label"] for group in main["groups"]] == ["GRPO", "TRL (imported)"]


def test_runs_of_a_large_study_do_not_hide_ones_own(page, lab, pair, monkeypatch):
    monkeypatch.setattr(run_picker, "OFFERED", 3)
    for run in pair[3:]:
        lab.store.mark(run, project="Studies")
    runs = next(each for each in page("compare").multiselect if each.label == "Runs")
    assert len(runs.options) == 3


def test_runs_of_lessons_and_studies_are_not_offered(page, lab, pair):
    lab.store.mark(pair[0], project="Studies")
    runs = next(each for each in page("compare").multiselect if each.label == "Runs")
    assert len(runs.options) == len(pair) - 1


def test_the_plane_has_room_for_all_that_is_drawn_and_explains_the_front_it_draws(page, lab):
    runs = [tools.stored(lab.store, [0.2, level, *[level] * 5], algorithm=key, kl=[high, *[end] * 6])
            for key, level, high, end in (("grpo", 0.9, 0.8, 0.3), ("rloo", 0.5, 0.1, 0.05))]
    test = page("compare", runs=",".join(runs), view="plane")
    panel, = charts(test)["main"]["panels"]
    for axis in "xy":
        low, high = panel["range"][axis]
        values = [value for line in panel["lines"].values() for value in line[axis]]
        assert low < min(values) and high > max(values)
    assert panel["range"]["x"][1] == pytest.approx(1.08 * 0.8)  # GRPO's way leads further out than to its end
    assert "front" in panel["lines"] and "dotted: the Pareto front" in panel["caption"]
    assert any("Dotted: the Pareto front" in each.value for each in test.caption)


def test_a_sweep_shows_its_runs_and_how_far_they_are(page, lab, pair):
    sweep = queue(lab.store, [make(algorithm_key="grpo", task_key="sort", seed=number) for number in range(3)])
    test = page("compare", sweep=sweep)
    assert sweep in html(test) and "3 queued" in html(test)
    assert "Runs" not in [each.label for each in test.multiselect]
    next(each for each in test.text_input if each.label == "Name").set_value("my sweep").run()
    assert lab.store.sweep_names() == {sweep: "my sweep"} and "<b>my sweep</b>" in html(page("compare", sweep=sweep))
    assert charts(test)["main"]["groups"][0]["note"] == "waiting"
    test = page("compare", sweep="sweep-gone")
    assert "There is no sweep “sweep-gone” here" in warnings(test)[0]


def test_controls_without_effect_are_left_out(page, lab):
    Answering(lab.launcher, lambda spec: None)
    run = trained(lab.store)
    labels = {view: {box.label for box in page("compare", runs=run, view=view).selectbox} for view in (
        "curves", "answers")}
    assert "Metric" in labels["curves"] and "Metric" not in labels["answers"]


def test_a_job_that_cannot_be_asked_again_is_a_sentence(page, lab):
    asked = Answering(lab.launcher, lambda spec: None)
    put = asked.compute

    def once(spec):
        if asked.asked:
            raise LabError("The file is gone: restore it.")
        return put(spec)

    lab.launcher.compute = once
    assert says(page("compare", runs=trained(lab.store), view="answers").error[0].value, "gone", "restore it")
