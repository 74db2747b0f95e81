"""The tab Judge again: the judges that it offers, the job that it starts, its chart and its table."""

import pytest

from app.llm import judge_figures as figures
from app.llm import judge_tab as tab
from labcore.analysis import judge_again
from labcore.errors import LabError
from labcore.runs.files import step_files
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.session import Record
from labcore.workers.watched_run import spec_of
from tests.analysis.test_judge_again import store_hacked
from tests.app.seeding import html, ran, seed
from tests.app.test_action_tab import press


@pytest.fixture
def hacked(lab):
    run = seed(lab.store, "finished")
    (run_folder(run) / "spec.json").write_text(lab.store.run(run).spec.to_json())
    for path in step_files.found(run_folder(run) / "samples"):
        path.unlink()
    store_hacked(run)
    return run


def done(spec):
    return judge_again.judge_again({key: value for key, value in spec.items() if key != "job"})


def test_a_judge_is_chosen_and_its_scores_are_compared_with_the_reward(page, asked, lab, hacked):
    asked.reply = done
    test = page("llm", run=hacked, tab=tab.NAME)
    assert asked.asked == [], "nothing is computed that nobody asked for"
    press(test, "Compute")
    [spec] = asked.asked
    assert (spec["by"], spec["run"]) == ("task", hacked)
    said = [each.value for each in test.markdown]
    assert any(each.startswith(":orange[:material/warning:] On the 48 stored completions") for each in said)
    assert any("groups with signal first" in each.value for each in test.caption)
    assert '<code style="white-space:pre-wrap">&lt;b&gt;a</code>' in html(test), "what a model writes is text"


def test_a_link_opens_a_kept_judgement_that_needs_no_click(page, asked, lab, hacked):
    done(judge_again.spec_for(hacked, "regex", {"pattern": "^[a-z]{3}$"}))
    done(judge_again.spec_for(hacked, "exact"))
    test = page("llm", run=hacked, tab=tab.NAME, judged_by="regex", judged_pattern="^[a-z]{3}$")
    assert asked.asked == [] and any("`regex` falls" in each.value for each in test.markdown)
    [others] = [each for each in test.expander if "other judgement" in each.label]
    assert others.label == "1 other judgement of this run" and "`exact`" in others.markdown[0].value


def test_the_settings_of_a_verifier_are_asked_for(page, asked, lab, hacked):
    asked.reply = done
    test = page("llm", run=hacked, tab=tab.NAME, judged_by="length")
    box, = [each for each in test.number_input if each.label == "Shortest"]
    box.set_value(3)
    ran(test)
    press(test, "Compute")
    assert asked.asked[-1]["knobs"] == {"length_low": 3, "length_high": 40}


def test_only_code_that_lies_in_the_labs_folder_is_offered(lab, hacked, monkeypatch):
    run = lab.store.run(hacked)
    monkeypatch.delenv("RL_LAB_JUDGE_URL", raising=False)
    assert not any("function" in label or "judge" in label.lower() for label in tab.offered(run).values())
    folder = run_folder("x").parent / "rewards"
    folder.mkdir()
    (folder / "mine.py").write_text("def last(completions, **_):\n    raise SystemExit('this is read, not run')\n")
    monkeypatch.setenv("RL_LAB_JUDGE_URL", "http://localhost:8000")
    labels = tab.offered(run)
    assert "Your function last" in labels.values() and "The judge of RL_LAB_JUDGE_URL" in labels.values()


def test_completions_of_a_watched_run_are_judged_on_its_page(page, asked, lab):
    """No task of the lab's, and no answers: verifiers that need none remain."""
    run = lab.store.create(spec_of({"name": "qwen", "tool": "TRL", "config": {"algorithm": "grpo"}}, "qwen"), mine=True)
    step_files.write(run_folder(run) / "samples", 1, '{"step": 1, "groups": []}')
    (run_folder(run) / "spec.json").write_text(lab.store.run(run).spec.to_json())
    store_hacked(run)
    for step in range(1, 26):
        lab.store.append(run, Record(step, step, {"reward": 0.5}), 0.1 * step)
    lab.store.set_state(run, "running")
    lab.store.set_state(run, "finished")
    asked.reply = done
    test = page("watch", run=run, tab=tab.NAME, judged_by="length")
    press(test, "Compute")
    assert asked.asked[-1]["by"] == "length" and any("`length`" in each.value for each in test.markdown)
    assert judge_again.TASK not in tab.offered(lab.store.run(run))
    with pytest.raises(LabError, match="no task with a verifier"):
        done(judge_again.spec_for(run, "task"))


def test_both_share_an_axis_only_where_both_are_shares():
    def found(score):
        means = [{"step": at, "n": 8, "reward": {"mean": 0.1 * at, "low": 0.1 * at - 0.05, "high": 0.1 * at + 0.05},
                  "score": {"mean": score * at, "low": None, "high": None}} for at in (1, 5)]
        return {"name": "a long name of a reward model", "steps": means}
    shared, apart = (figures.over_steps(found(score), 3, "light") for score in (0.1, -4.0))
    assert {trace.yaxis for trace in shared.data} == {"y"} and {trace.yaxis for trace in apart.data} == {"y", "y2"}
    assert shared.layout.annotations[0].yshift == 9 and shared.layout.annotations[1].yshift == -9
    assert apart.layout.annotations[1].text == "<b>a long name of …</b>"
    assert len([trace for trace in shared.data if trace.fill]) == 1, "a band only where there is an interval"
