"""The page of the lessons: the list, a prediction that is locked, the verdict, one seed more, begun anew."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from itertools import pairwise
from math import log

import numpy as np
import pytest

from app import theme
from app.components.draw_curve import sound
from app.lessons import words
from app.lessons.curves import payload
from app.lessons.pictures import HIGH, WIDE, picture
from labcore.analysis.estimate import estimate
from labcore.analysis.lessons import folders, progress
from labcore.analysis.lessons.course import Course, course, start
from labcore.analysis.lessons.expression import parse
from labcore.analysis.lessons.folders import VARIABLE
from labcore.analysis.lessons.progress import Attempt
from labcore.analysis.lessons.verdict import Compared, judge, margin_text
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.session import Record
from labcore.workers.worker import drive
from tests.analysis.lessons.lesson_text import TEXT
from tests.app.seeding import html, link, ran, samples
from tests.every import every
from tests.words import says


@pytest.fixture
def mine(tmp_path_factory, monkeypatch):
    """A folder with one small lesson, "both"."""
    folder = tmp_path_factory.mktemp("lessons")
    monkeypatch.setenv(VARIABLE, str(folder))
    (folder / "both.md").write_text(TEXT, "utf-8")
    return folder


def button(test, key):
    return next((each for each in test.button if each.key == key), None)


def finish(lab):
    for run_id in lab.store.queued():
        assert drive(lab.store, run_id) == "finished"


def markdown(test) -> str:
    return " ".join(each.value for each in test.markdown)


def test_the_list_has_every_lesson_and_says_what_is_wrong_with_a_file(page, mine):
    (mine / "bad.md").write_text(TEXT.replace("right = 2", "right = 5"), "utf-8")
    progress.predict("cliff", 1)
    progress.begin("cliff", "sweep-1")
    progress.settle("cliff", "holds", True, 3)
    test = page("lessons")
    assert f"**1 of {len(folders.built_in()) + 1}** done" in markdown(test)
    assert "The claim holds, as you predicted" in html(test)
    assert len(test.warning) == 1 and "bad.md is left out: line 12" in test.warning[0].value
    assert "No such" not in html(page("lessons", lesson="cliff"))
    assert "did you mean" in page("lessons", lesson="clif").error[0].value


def test_a_prediction_is_locked_then_run_then_judged_then_one_seed_more(page, lab, mine):
    test = page("lessons", lesson="both")
    assert button(test, "lesson:run").disabled and "matter of the maze" not in markdown(test)
    assert "The claim." not in markdown(test)  # it would give the answer away
    test.radio[0].set_value("None of them")
    button(ran(test), "lesson:run").click()
    ran(test)
    attempt = progress.newest("both")
    assert attempt is not None and attempt.choice == 1 and len(lab.store.sweep_runs(attempt.sweep)) == 6
    assert "The claim." in markdown(test)
    assert test.radio[0].disabled and test.radio[0].value == "None of them" and lab.launcher.woken == 1
    assert "0 of 6 runs finished, 6 waiting" in html(test) and button(test, "lesson:run") is None

    finish(lab)
    test = page("lessons", lesson="both")  # another tab, or after a restart
    assert "The claim holds in these runs" in html(test) and "Correct." in markdown(test)
    assert "8.100" in html(test) and "matter of the maze" in markdown(test)
    assert (found := progress.newest("both")) and (found.says, found.right, found.seeds) == ("holds", True, 3)

    button(test, "lesson:seed").click()
    assert "6 of 8 runs finished" in html(ran(test))
    finish(lab)
    test = page("lessons", lesson="both")
    assert progress.newest("both").seeds == 4
    button(test, "lesson:anew").click()
    assert not ran(test).radio[0].disabled and len(progress.attempts()["both"]) == 1


def test_runs_that_are_gone_or_were_stopped_are_said(page, lab, mine):
    progress.predict("both", 0)
    test = page("lessons", lesson="both")
    assert "gone or were not started" in test.info[0].value
    button(test, "lesson:start").click()
    ran(test)
    for run_id in lab.store.queued():
        lab.store.ask(run_id, "stop")
    test = page("lessons", lesson="both")
    assert "stopped" in test.warning[0].value
    button(test, "lesson:resume").click()
    ran(test)
    assert len(lab.launcher.resumed) == 6


def test_damaged_progress_is_said_and_the_lessons_are_listed(page, lab, mine, tmp_path):
    (tmp_path / "lessons.json").write_text("{", "utf-8")
    test = page("lessons")
    assert "is damaged" in test.error[0].value and "**0 of" in markdown(test)
    assert "is damaged" in page("lessons", lesson="both").error[0].value


def test_the_chart_of_a_share_that_is_mostly_small_fits_its_axis_to_it():
    lesson = folders.find("clip")
    clipped, reward = payload(Course(lesson, "none", {}))["panels"]
    assert (clipped["key"], clipped["scale"], reward["scale"]) == ("clip_frac/region", "small rate", "linear")
    assert "ε" not in lesson.choices[lesson.right]  # all of its runs have one and the same


def test_the_first_hour_goes_from_lesson_to_lesson_in_its_order(page, lab):
    test, hour = page("lessons"), folders.FIRST_HOUR
    assert [each.key for each in test.button if each.key.startswith("hour:")] == [f"hour:{name}" for name in hour]
    button(test, "lesson:hour").click()
    assert link(ran(test)) == {"lesson": hour[0]}
    for name, after in pairwise(hour):
        button(test, "lesson:next").click()
        assert link(ran(test)) == {"lesson": after}, name
    assert button(test, "lesson:next") is None
    progress.predict(hour[0], 0)
    progress.settle(hour[0], "holds", True, 3)
    assert button(page("lessons"), "lesson:hour").label == "Continue with lesson 2"


def svg(html):
    return b64decode(re.search(r"base64,([\w+/=]+)", html)[1]).decode()


def test_a_picture_shows_the_beginning_alone_until_there_is_a_verdict():
    lesson = folders.find("why_clip")
    before, after = (picture(lesson, whole, "light") for whole in (False, True))
    drawn = [[len(path.split("L")) for path in re.findall(r'd="M([^H"]+)" fill="none"', svg(each))]
             for each in (before, after)]
    assert drawn[1] == [24, 24] and all(count < 10 for count in drawn[0]) and len(drawn[0]) == 2
    assert "no clip" in after and "no clip" in before and "?" in svg(before) and "?" not in svg(after)
    assert theme.DARK[0] in svg(picture(lesson, True, "dark"))


@every("name", [lesson.name for lesson in folders.built_in()])
def test_no_picture_gives_the_answer_away_before_the_verdict(name):
    """Beyond the first two points its lines lie within a tenth of the distance at which they end."""
    heights = [[[float(place.split()[1]) for place in path.split("L")] for path in re.findall(
        r'd="M([^H"]+)" fill="none"', svg(picture(folders.find(name), whole, "light")))] for whole in (False, True)]
    if len(heights[0]) < 2:
        return
    ends = [line[-1] for line in heights[1]]  # a shorter curve has fewer points
    end, *gaps = (max(each) - min(each) for each in (ends, *zip(*heights[0], strict=False)))
    assert max(map(len, heights[0])) <= 7 and len(gaps) >= 2 and all(
        gap <= 0.1 * end + 0.2 for gap in gaps[2:]), "0.2: the picture rounds to 0.1 px"


def test_a_picture_never_shows_the_curve_that_is_to_be_drawn():
    lesson = folders.find("zero_variance")
    before, after = (svg(picture(lesson, whole, "light")).count("<circle") for whole in (False, True))
    assert (before, after) == (1, 2) and lesson.drawn.metric in lesson.picture


@every("name", [lesson.name for lesson in folders.built_in()])
def test_every_picture_stays_within_its_frame(name):
    places = [tuple(map(float, place)) for path in re.findall(
        r'd="M([^H"]+)"', svg(picture(folders.find(name), True, "dark"))) for place in re.findall(
        r"([\d.-]+) ([\d.-]+)", path)]
    assert places and all(0 <= x <= WIDE and 0 <= y <= HIGH for x, y in places)


def test_a_verdict_shows_what_an_imperfect_reward_pays_for(page, lab):
    """The run's last samples: those with a reward that are not correct first."""
    lesson = folders.find("reward_with_a_hole")
    progress.predict(lesson.name, 1)
    progress.begin(lesson.name, start(lab.store, lesson))
    for run in lab.store.runs():
        lab.store.claim(run.id)
        lab.store.append(run.id, Record(1, 1, {"reward": 0.5, "exact_match": 0.5}), 1.0)
        lab.store.set_state(run.id, "finished")
        folder = run_folder(run.id) / "samples"
        folder.mkdir(parents=True)
        hacked = samples()
        hacked["groups"][0]["completions"][1] |= {"text": "aa<b>", "reward": 1.0, "exact": False}
        (folder / "step-000005.json").write_text(json.dumps(hacked))
    shown = html(page("lessons", lesson=lesson.name))
    assert "aa&lt;b&gt;" in shown and shown.index("aa&lt;b&gt;") < shown.index(">abcd</b>") and "not correct" in shown


def test_a_drawn_lesson_waits_for_the_curve(page, lab):
    test = page("lessons", lesson="entropy")
    assert button(test, "lesson:run").disabled and not test.radio


@pytest.mark.parametrize("attempts, said", [
    ([], "Not started"), ([Attempt(0, 1)], "Prediction made"), ([Attempt(0, 1, sweep="s")], "Runs started"),
    ([Attempt(0, 1, sweep="s", says="close", seeds=3)], "Too close to call with 3 seeds"),
    ([Attempt(0, 1, sweep="s", says="fails")], "The claim does not hold"),
    ([Attempt(0, 1, sweep="s", says="holds", right=False, closed=True)],
     "The claim holds, contrary to your prediction"),
    ([Attempt(0, 1, closed=True)], "Not started")])
def test_how_far_the_reader_is(attempts, said):
    assert words.state(attempts)[1] == said
    assert words.done(attempts) == (said.startswith("The claim"))


def margin(values):
    found = estimate({"": values}, {"": 1.0})
    return found.mean, found.low, found.high


@pytest.mark.parametrize("values, said", [
    ((0.353, 0.353, 0.353), "0.353 (all seeds agree)"), ((0.35301, 0.35302, 0.353), "0.353 (all seeds agree)"),
    ((0.3, 0.4, 0.5), "0.400 (0.152 to 0.648)"), ((0.35, 0.356), "0.353 (fewer than 3 seeds: no interval)")])
def test_an_interval_is_shown_where_seeds_differ(values, said):
    part = Compared("a > b", (), False, values, (0.0,) * len(values), *margin(values), "holds")
    assert margin_text(part, words.shown) == said


def test_a_lesson_whose_runs_were_deleted_in_part_says_so_and_can_be_begun_anew(page, lab, mine):
    progress.predict("both", 0)
    progress.begin("both", start(lab.store, folders.find("both")))
    runs = lab.store.runs()
    lab.store.trash([run.id for run in runs])
    lab.store.restore([run.id for run in runs if run.spec == runs[0].spec])
    for run in lab.store.runs():
        lab.store.requeue(run.id)
        drive(lab.store, run.id)
    test = page("lessons", lesson="both")
    assert "Some runs of this lesson were deleted" in test.warning[0].value
    button(test, "lesson:anew").click()
    assert not ran(test).radio[0].disabled


@pytest.mark.parametrize("values, said", [
    ((-5.0, 0.0, log(100) + 5), "× 4.642 (under 0.001 to over 1,000)"),
    ((2000.0, 900.0, 10.0), "× over 1,000 (under 0.001 to over 1,000)"),
    ((2000.0, 2001.0, 2002.0), "× over 1,000"), ((-2000.0,) * 3, "× under 0.001 (all seeds agree)"),
    ((log(2),), "× 2.000 (fewer than 3 seeds: no interval)"), ((log(2),) * 3, "× 2.000 (all seeds agree)")])
def test_the_margin_of_two_logarithms_is_a_factor_and_a_large_one_is_not_written_out(values, said):
    part = Compared("log(a) > log(b)", (), True, values, (0.0,) * len(values), *margin(values), "close")
    assert margin_text(part, words.shown) == said


def test_a_comparison_that_reads_nothing_is_a_sentence_too():
    lesson = folders.find("cliff")
    lesson = replace(lesson, check=parse("1 < 2", ["sarsa"]), sentences=())
    verdict = judge(lesson.check, {"sarsa": [{}, {}]})
    assert '<td style="min-width:13rem">1 &lt; 2.</td>' in words.table(lesson, verdict)


def test_a_comparison_is_a_sentence_with_the_numbers_that_it_reads():
    lesson = folders.find("kl_coefficient")
    runs = {name: [{"kl": (np.ones(1), np.array([value]))} for value in values]
            for name, values in {"free": (0.3, 0.5), "tied": (0.1, 0.1)}.items()}
    said = words.table(lesson, judge(lesson.check, runs))
    assert says(said.replace("\xa0", " "), "more than 1.5 times", "β = 1", "0.400", "0.100")
    assert "last(" not in said
    plain = replace(lesson, sentences=())  # of a teacher who wrote none
    assert "mean of KL to the reference of “β = 0”" in words.table(plain, judge(lesson.check, runs))


@pytest.mark.parametrize("check, said", [
    ("last(a, 'reward') < last(b, 'reward') - 1", "−0.200 − (3.284 − 1) = −2.484"),
    ("last(a, 'reward') < last(b, 'reward')", "−0.200 − 3.284 = −3.484"),
    ("last(b, 'reward') > last(a, 'reward')", "3.284 − (−0.200) = 3.484"),
    ("last(a, 'reward') / 2 < last(b, 'reward')", "−0.100 − 3.284 = −3.384")])
def test_the_margin_is_the_sum_of_the_numbers_beside_it(check, said):
    lesson = replace(folders.find("cliff"), check=parse(check, ["a", "b"]), sentences=())
    runs = {name: [{"reward": (np.ones(1), np.array([value]))}] * 3 for name, value in (("a", -0.2), ("b", 3.284))}
    shown = words.table(lesson, judge(lesson.check, runs)).replace("\xa0", " ")
    assert said in shown and "means over 3 seeds" in shown


@pytest.mark.long
def test_a_curve_that_ends_before_its_last_step_says_why(lab, mine):
    (mine / "gamma.md").write_text(folders.TEMPLATE.read_text("utf-8"), "utf-8")
    lesson = folders.find("gamma")
    found = start(lab.store, lesson)
    finish(lab)
    notes = [look["note"] for look in payload(course(lab.store, lesson, found))["groups"]]
    assert notes == ["3 seeds, finished at step 18 of 30", "3 seeds, finished at step 27 of 30"]


def test_the_first_hour_is_in_the_worlds_that_its_sentence_names(page):
    kinds = [folders.find(name).setups[0].spec.kind for name in folders.FIRST_HOUR]
    assert kinds == ["maze", "llm", "llm", "llm", "llm", "maze"]
    assert re.search("first and the last .* maze; the four between .* language model", markdown(page("lessons")))


def test_a_check_is_said_in_words():
    cliff, clip = (folders.find(name) for name in ("cliff", "clip"))
    assert words.readable("last(sarsa, 'episode_return', 150) > 2", cliff) == (
        "Return of “SARSA”, mean of the last 150 values > 2")
    assert words.readable("max(once, 'clip_frac/region') = 0", clip).startswith("largest Clipped")
    assert words.readable("last(who, 'reward')", cliff) == "last(who, 'reward')"


@pytest.mark.parametrize("said", [None, "x", [], [1], [1, "2"], {"a": 1}])
def test_what_is_no_curve_is_none(said):
    assert sound(said, 0, 1) == ()
