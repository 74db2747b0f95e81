"""The page of watched runs: each state of a run, and data that the trainer did or did not send."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.llm.microscope import scatter
from app.runs.state import PICKED
from app.share.content import content
from app.training import files, live, own_metrics, twin
from app.training.feed import FEW, Feed, panels
from app.training.status_line import line, silence
from app.training.tabs import grouped
from app.watch import teach
from app.watch.page import missing
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import Reader
from labcore.catalog.kinds import WATCH
from labcore.catalog.metrics import OWN, metric
from labcore.exports.folder import export_run
from labcore.runs.files import called
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.search import search
from labcore.runs.spec.run_spec import every_knob
from labcore.runs.store.rows import RESUMABLE
from labcore.watch import Watch
from labcore.workers.watcher import Watcher
from tests.app.runs_page import press, select
from tests.app.seeding import components, html, link, mounted, ran, seed
from tests.every import now
from tests.words import says

CONFIG = {"trainer": "GRPOTrainer", "model_name_or_path": "/data/models/Qwen3-4B", "learning_rate": 1e-6,
          "num_generations": 4, "output_dir": "/home/me/out"}
TEXTS = [f"First we add the two numbers, and then we have it. So the answer is {place}." for place in range(4)]


def watched(lab, name="qwen grpo", tool="TRL", steps=6, own=0, config=CONFIG, end="finished", message="", **sent_too):
    """A run that a trainer sent, with completions at its last step if `sent_too` has any."""
    run = Watch(name, tool=tool, config=config)
    for step in range(1, steps + 1):
        run.log(step, {"rewards/mean": 0.1 * step, "kl": 0.01 * step, "entropy": 1 / step, "lr": 1e-6,
                       **{f"timing/part_{place:03d}": float(place) for place in range(own)}}, tokens=100 * step)
    if sent_too:
        run.rollouts(steps, ["What is 3 + 4?"], TEXTS, **{"rewards": {"correct": [1, 0, 0, 1]}, **sent_too})
    run.finish(end, message)
    Watcher(lab.store).look()
    return lab.store.runs(kind=WATCH.key, limit=1)[0].id


def labels(test):
    return [button.label for button in test.button]


def words(test):
    return html(test) + " ".join(element.value for element in (*test.caption, *test.markdown))


@pytest.mark.parametrize("end, said", [("finished", "Compare it with other runs"), ("stopped", "Stopped"),
                                       ("failed", "CUDA error: out of memory")])
def test_an_ended_run_shows_how_it_ended_and_offers_no_controls(lab, page, end, said):
    run_id = watched(lab, end=end, message="CUDA error: out of memory" if end == "failed" else "")
    test = page("watch", run=run_id)
    assert said in words(test) and "change its settings in TRL" in words(test)
    assert not {"Run", "Run again", "Resume", "Pause", "Stop", "Fork", "Sweep", "New run"} & {*labels(test)}
    assert "Watch another run" in labels(test) and "Resume continues" not in words(test)


def test_the_sentence_names_only_trainer_algorithm_and_model(lab, page):
    goal = mounted(page("watch", run=watched(lab)), "goal")["goal"]
    assert says(goal["html"], "<code>TRL</code>", "GRPO", "<code>Qwen3-4B</code>"), "not the folders of the model"
    plain = mounted(page("watch", run=watched(lab, tool="", config={})), "goal")["goal"]
    assert plain["html"] == "A run of another trainer."


def test_charts_show_the_sent_metrics_with_the_trainer_s_names(lab, page):
    run_id = watched(lab, own=3)
    data = mounted(page("watch", run=run_id), "panels")
    shown = {panel["key"]: panel for panel in data["panels"]}
    assert [*shown] == ["reward", "kl", "entropy", "learning_rate", *(f"{OWN}timing/part_{n:03d}" for n in range(3))]
    assert called.read(run_id) == {"reward": "rewards/mean", "learning_rate": "lr"}
    assert shown["reward"]["called"] == "TRL: rewards/mean" and shown["kl"]["called"] == "TRL: kl"
    assert shown[f"{OWN}timing/part_000"]["called"] == "only in TRL"
    assert [tile["key"] for tile in data["tiles"]] == ["reward", "kl", "entropy", "learning_rate"]
    assert {"reward", "kl", "entropy"} <= {*data["runs"][run_id]["rows"][0][3]}


def test_hundreds_of_own_metrics_are_folded_and_found_by_name(lab, page):
    run_id = watched(lab, own=200, steps=3)
    test = page("watch", run=run_id)
    main = mounted(test, "panels")
    assert not any(panel["key"].startswith(OWN) for panel in main["panels"])
    assert not any(key.startswith(OWN) for key in main["runs"][run_id]["rows"][0][3]), "they are not sent unseen"
    assert "200 more metrics of TRL" in test.expander[0].label
    test.query_params[own_metrics.FIND.key] = "part_19"
    test.session_state["own_metrics"] = True
    found = [data for data in components_with(ran(test), "panels") if data["panels"][0]["key"].startswith(OWN)]
    assert [panel["title"] for panel in found[0]["panels"]] == [f"timing/part_{n}" for n in range(190, 200)]
    assert len(found[0]["runs"][run_id]["rows"]) == 3 and {*found[0]["runs"][run_id]["rows"][0][3]} > {
        f"{OWN}timing/part_190"}
    assert link(test)["metric"] == "part_19"


def components_with(test, part):
    return [data for data in components(test) if part in data]


def test_a_run_with_only_own_metrics_has_large_charts_of_the_first_ones(lab):
    run_id = watched(lab)
    spec = lab.store.run(run_id).spec
    feed = Feed(spec, logged={f"{OWN}{n:03d}" for n in range(FEW + 1)})
    shown = panels(spec, [feed], ended=False)
    assert [panel["title"] for panel in shown] == ["000", "001", "002"] and all(panel["large"] for panel in shown)


def test_metric_names_of_the_trainer_cannot_be_markup(lab):
    run_id = watched(lab)
    spec = lab.store.run(run_id).spec
    feed = Feed(spec, logged={f"{OWN}<img src=x onerror=alert(1)>"})
    title = panels(spec, [feed], ended=False)[0]["title"]
    script = Path(own_metrics.__file__).parents[1] / "components" / "live_chart" / "live_chart.js"
    assert title.startswith("<img") and "<b>${escaped(panel.title)}</b>" in script.read_text()


def test_no_words_of_a_metric_leave_their_place_in_a_page():
    """A part of a reward is named by a file or a program, and its help has the name."""
    parts = Path(own_metrics.__file__).parents[1] / "components"
    assert '"x' in metric('reward/a"x').help
    for path in sorted(parts.rglob("*.js")):
        assert not re.search(r"[\">]\$\{panel\.(help|title|called|short)\}", path.read_text("utf-8")), path.name


def test_settings_that_changed_are_listed_first_and_have_a_marker(lab, page):
    run = Watch("mine", tool="TRL", config=CONFIG)
    for step in range(1, 9):
        if step == 5:
            run.config({"learning_rate": 5e-7, "per_device_train_batch_size": 16}, step)
        run.log(step, {"reward": 0.1 * step})
    run.finish()
    Watcher(lab.store).look()
    run_id = lab.store.runs(kind=WATCH.key)[0].id
    test = page("watch", run=run_id)
    table = next(element.proto.body for element in test.get("html") if "rl-settings" in element.proto.body)
    assert table.index("5e-07") < table.index("GRPOTrainer") and "Learning rate η" in table
    marks = mounted(test, "markers")["markers"]
    assert {mark["text"] for mark in marks} == {"η 1e-06 → 5e-07", "per_device_train_batch_size ? → 16"}
    assert all(mark["event"] is None and mark["step"] == 4 for mark in marks), "nothing is forked from it"
    assert "Same run without this change" not in labels(test)


@pytest.mark.parametrize("more, said", [
    ({}, "The trainer did not send advantages"), ({}, "It sent no tokens"),
    ({"advantages": [1.0, -1, -1, 1]}, "It sent no tokens"),
    ({"advantages": [1.0, -1, -1, 1], "tokens": [text.split() for text in TEXTS]}, "It sent no log-probs"),
    ({"advantages": [1.0, -1, -1, 1], "tokens": [text.split() for text in TEXTS],
      "logprobs": [[-0.5] * len(text.split()) for text in TEXTS]},
     "It did not send the old policy's log-probs, the reference model's log-probs, entropies, so the ratio, KL, "
     "entropy of each token are not available."),
    ({"advantages": [1.0, -1, -1, 1], "tokens": [text.split() for text in TEXTS],
      **{name: [[-0.5] * len(text.split()) for text in TEXTS] for name in ("logprobs", "old_logprobs", "entropy")}},
     "It did not send the reference model's log-probs, so the KL of each token is not available."),
])
def test_a_sentence_names_the_data_that_was_not_sent(lab, page, more, said):
    test = page("watch", run=watched(lab, **{"rewards": {"correct": [1, 0, 0, 1]}, **more}))
    assert said in words(test)
    assert mounted(test, "verdicts")["verdicts"][0]["text"] == "reward 1"


def test_nothing_is_missing_if_everything_was_sent(lab):
    columns = {name: [[-0.5] * 3] * 4 for name in ("logprobs", "old_logprobs", "ref_logprobs", "entropy")}
    run_id = watched(lab, advantages=[1.0, -1, -1, 1], tokens=[["a", "b", "c"]] * 4, **columns)
    assert missing(files.newest(run_id, "samples", 99)) == ""


@pytest.mark.parametrize("trainer", now(["old_logprobs", "logprobs"], "old_logprobs"))
def test_the_sampler_is_compared_with_the_trainer_if_both_were_sent(lab, page, trainer):
    columns = {"sampler_logprobs": [[-0.5, -0.25, None]] * 4, trainer: [[-0.5, -0.5, -0.5]] * 4}
    run_id = watched(lab, tokens=[["a", "b", "c"]] * 4, **columns)
    found = scatter.dots(files.newest(run_id, "samples", 99))
    assert [(dot.text, dot.sampler, dot.gap) for dot in found] == [("a", -0.5, 0.0), ("b", -0.25, -0.25)] * 4
    said = words(page("watch", run=run_id, sampler="1"))
    assert "8 tokens for which the trainer sent both log-probs: mean |difference| 0.12 nats/token" in said
    alone = watched(lab, tokens=[["a", "b", "c"]] * 4, sampler_logprobs=[[-0.5] * 3] * 4)
    assert not scatter.dots(files.newest(alone, "samples", 99))


@pytest.mark.parametrize("more", [{}, {"rewards": {"reward": [0.7, 0.2]}}, {
    "rewards": {"reward": [0, 0]}, "tokens": [["4"], ["5"]], "logprobs": [[-0.5], [-1.5]],
    "ref_logprobs": [[-0.5], [-1.5]]}, {
    "rewards": {"reward": [0.7, 0.2]}, "tokens": [["4"], ["5"]], "logprobs": [[-0.5], [-1.5]],
    "ref_logprobs": [[-0.7], [-1.0]]}])
def test_pairs_that_were_sent_are_shown_as_pairs(lab, page, more):
    run = Watch("dpo", tool="TRL", config={"trainer": "DPOTrainer"})
    run.log(1, {"loss": 0.5})
    run.rollouts(1, ["2 + 2 = "], ["4", "5"], pairs=True, **more)
    run.finish()
    Watcher(lab.store).look()
    test = page("watch", run=lab.store.runs(kind=WATCH.key, limit=1)[0].id)
    shelf = mounted(test, "kinds")
    assert shelf["kinds"] == [["pairs", "Pairs", 1]]
    assert [row["role"] for row in shelf["cards"][0]["rows"]] == ["chosen", "rejected"]
    rewards = more.get("rewards", {}).get("reward")
    assert shelf["cards"][0]["facts"] == ("margin 0.50" if rewards == [0.7, 0.2] else "margin 0" if rewards else "")
    strip = mounted(test, "asked")
    assert [row["text"] for row in strip["rows"] if not row["rest"]] == ["4", "5"]
    assert ("The margin is" in strip["sentence"]) == ("rewards" in more)
    assert not [each for each in test.tabs if each.label == "Judge again"], "they have no rewards of a reward function"


def test_a_run_without_a_line_waits_and_a_silent_run_shows_for_how_long(lab, page):
    run = Watch("mine", tool="OpenRLHF")
    run.event(None, "hello")
    until = time.monotonic() + 5
    while not lab.store.runs(kind=WATCH.key) and time.monotonic() < until:
        Watcher(lab.store).look()
    row = lab.store.runs(kind=WATCH.key)[0]
    assert "waiting for its first line" in words(page("watch", run=row.id))
    run.finish()
    feed = Feed(row.spec)
    quiet = replace(row, heartbeat=time.time() - 200)
    assert says(silence(quiet, feed), "no line for 3 min 20 s", "paused", "busy", "ended")
    assert "#E69F00" in line(quiet, feed) and silence(replace(row, heartbeat=time.time()), feed) == ""
    assert silence(replace(quiet, state="finished"), feed) == ""


def test_without_a_run_the_page_explains_watching_and_opens_the_first_run(lab, page, monkeypatch):
    started = []
    monkeypatch.setattr(teach.subprocess, "Popen", lambda command, **more: started.append((command, more["env"])))
    test = page("watch")
    code = " ".join(block.value for block in test.code)
    assert "LabCallback()" in code and "rl-lab watch" in code and "run.rollouts(step" in code and "RL_LAB_HOME=" in code
    test.button(key="watch:demo").click()
    ran(test)
    (command, env), = started
    assert command[-1] == teach.DEMO and env["RL_LAB_HOME"] in code
    run_id = watched(lab)
    ran(test)
    assert link(test)["run"] == run_id


def test_a_new_tab_shows_the_newest_watched_run_even_if_it_has_ended(lab, page):
    run_id = watched(lab)
    assert link(page("watch"))["run"] == run_id


def test_an_ended_run_shows_new_steps_once_its_program_goes_on(lab, page, monkeypatch):
    monkeypatch.setattr(live.pace, "every", lambda seconds: seconds)
    run_id = watched(lab, end="failed")
    assert live._every(lab.store.run(run_id)) == live.ENDED_ELSEWHERE
    assert live._every(lab.store.run(seed(lab.store, "failed"))) is None, "only Resume continues a run of the lab"


def test_the_owner_can_star_and_delete_a_watched_run(lab, page):
    run_id = watched(lab)
    test = page("watch", run=run_id)
    test.button(key="watch:star").click()
    ran(test)
    assert lab.store.run(run_id).star
    test.button(key="watch:delete").click()
    assert "run" not in link(ran(test)) and not lab.store.runs(kind=WATCH.key)


def test_a_run_and_the_watched_run_of_its_script_link_to_each_other(lab, page):
    own = seed(lab.store, "finished")
    other = watched(lab, config={**CONFIG, "twin_of": own})
    rows = {run_id: lab.store.run(run_id) for run_id in (own, other)}
    assert [run.id for run in twin.twins(rows[other])] == [own] and [run.id for run in twin.twins(rows[own])] == [other]
    for name, run_id in (("watch", other), ("llm", own)):
        (found,) = [each for each in page(name, run=run_id).get("page_link") if "twin" in each.proto.label]
        assert "by=tokens" in found.proto.query_string and own in found.proto.query_string
    compared = page("compare", runs=f"{own},{other}", by="tokens", x="tokens")
    assert "Per token</b> at 600 tokens each" in words(compared) and "qwen grpo (TRL)" in words(compared)


@pytest.mark.parametrize("name", ["home", "runs"])
def test_lists_show_watched_runs_and_never_offer_to_resume_them(lab, page, name):
    run_id = watched(lab, end="stopped")
    Watcher(lab.store)  # its trainer has ended
    assert lab.store.run(run_id).state in RESUMABLE
    test = page(name)
    assert not any(label.startswith("Resume") for label in labels(test))
    assert "qwen grpo" in words(test) or name == "runs"


def test_details_of_a_watched_run_are_what_was_sent_and_nothing_that_the_lab_would_have_to_guess(lab, page):
    run_id = watched(lab, tool="Stable-Baselines3", config={"algorithm": "SAC", "buffer_size": 1000, "seed": 7})
    test = page("runs")
    assert list(test.dataframe[0].value["algorithm"]) == ["Stable-Baselines3 SAC"]
    settings = html(press(select(test, run_id), "act:details")).partition("<tr><th>tool")[2]
    assert "SAC</td>" in settings and "1000</td>" in settings and "7</td>" in settings
    assert "<th>task" not in settings and "<th>model" not in settings and ">0</td>" not in settings


def test_a_shared_file_of_a_watched_run_holds_no_folders_and_no_texts_of_settings(lab):
    run_id = watched(lab, advantages=[1.0, -1, -1, 1])
    data = content(lab.store, [run_id])
    run, = data["runs"]
    assert run["equation"] == "" and run["sources"] == {} and run["kept"][0]["story"] and run["kept"][0]["tokens"]
    assert run["settings"] == [["Tool", "TRL", ""], ["Algorithm", "GRPO", ""], ["G", "4", ""], ["η", "1e-06", ""]]
    assert "/data" not in str(data) and "/home" not in str(data)
    assert run["description"].startswith("A run of TRL, 6 steps in ")


def test_its_export_is_a_folder_without_a_checkpoint(lab, page, tmp_path):
    run_id = watched(lab, own=2)
    folder = export_run(lab.store, run_id, tmp_path / "out", tensorboard=True)
    assert {path.name.partition(".")[0] for path in folder.iterdir()} == {"metrics", "events", "knobs", "spec"}
    head, first = (folder / "metrics.csv").read_text().splitlines()[:2]
    assert head == "step,tokens,seconds,reward,kl,entropy,learning_rate,own/timing/part_000,own/timing/part_001"
    assert first.startswith("1,100,") and first.endswith(",0.1,0.01,1.0,1e-06,0.0,1.0")
    test = page("watch", run=run_id, tab="Export")
    assert "Checkpoints stay with the trainer" in words(test)
    offered = [element.proto.label for element in test.get("download_button")]
    assert {"Download everything (zip)", "metrics.csv", "Share as HTML", "Figures (zip)"} <= {*offered}
    assert "Download capsule" not in offered


def test_runs_of_one_name_and_setting_are_seeds_of_one_group(lab):
    runs = [watched(lab, config={**CONFIG, "seed": seed, "output_dir": f"/out/{seed}"}) for seed in (1, 2)]
    other = watched(lab, config={**CONFIG, "learning_rate": 5e-6})
    rows = [lab.store.run(run_id) for run_id in (*runs, other)]
    found = groups(Reader(lab.store).traces(rows, ["reward"]))
    assert [len(group.traces) for group in found] == [2, 1] and found[0].repeats == ()
    assert [group.label for group in found] == ["qwen grpo #1 (TRL)", "qwen grpo #3 (TRL)"]


def test_the_list_names_the_trainer_and_can_be_searched_by_it(lab):
    run_id = watched(lab)
    seed(lab.store, "finished")
    entries = Shelf(lab.store).entries()
    entry = next(entry for entry in entries if entry.id == run_id)
    assert (entry.tool, entry.algorithm, entry.task, entry.seed, entry.steps) == ("TRL", "GRPO", "", None, None)
    assert [each.id for each in search(entries, "tool=TRL")] == [run_id]


def test_sent_completions_can_be_judged_again(lab, page):
    test = page("watch", run=watched(lab, advantages=[1.0, -1, -1, 1]), tab="Judge again")
    assert "Score this run's stored completions" in words(test)


def test_a_trainer_that_resumed_from_a_checkpoint_makes_a_fork_beside_its_parent(lab, page):
    run = Watch("mine", tool="TRL", config=CONFIG, run_id="mine")
    for number, step in enumerate((*range(1, 7), *range(4, 9))):
        run.log(step, {"reward": 0.1 * number})
    run.finish()
    Watcher(lab.store).look()
    fork, parent = lab.store.runs(kind=WATCH.key)
    assert fork.spec.parent == (parent.id, 3) and fork.step == 8
    data = mounted(page("watch", run=fork.id), "panels")
    assert [*data["runs"]] == [fork.id, parent.id] and data["runs"][parent.id]["muted"]
    assert [mark["text"] for mark in data["markers"]] == ["fork"]
    test = page("runs")
    test.session_state[PICKED] = [fork.id]
    ran(test).button(key="act:details").click()
    ran(test)
    found = groups(Reader(lab.store).traces([fork, parent], ["reward"]))
    assert len(found) == 2 and "from" in found[0].label


def test_an_end_without_a_message_has_no_detail(lab):
    run_id = watched(lab)
    told = grouped(lab.store.events_after(run_id), ())[1]
    assert next(each for each in told if each["event"] == "finished")["detail"] == ""


@pytest.mark.parametrize("value", now(["strange", -1, [1, 2], {"a": "b"}, True], {"a": "b"}))
def test_settings_with_the_names_of_knobs_may_have_any_value(lab, page, value):
    """A trainer's `advantage` or `surrogate` need not be one of the lab's choices."""
    run_id = watched(lab, config={**CONFIG, **dict.fromkeys(every_knob(), value)}, advantages=[1.0, -1, -1, 1])
    assert mounted(page("watch", run=run_id), "tiles")["tiles"]
    for name, query in (("runs", {}), ("home", {}), ("compare", {"runs": run_id}), ("surrogate", {})):
        page(name, **query)
    assert content(lab.store, [run_id])["runs"]
