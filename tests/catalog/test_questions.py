"""The questions: complete, short, and about what exists."""

import re
from itertools import groupby

from labcore.analysis.doctor.finding import KEY
from labcore.analysis.doctor.rules import RULES
from labcore.analysis.lessons.folders import lessons
from labcore.catalog import questions
from labcore.catalog.metrics import METRICS
from labcore.catalog.question import TOPICS, Question
from labcore.catalog.questions import QUESTIONS
from labcore.runs.spec.run_spec import every_knob
from tests.every import every

FINDINGS = {rule.key for rule in RULES} | {KEY}


def test_every_finding_of_the_doctor_has_a_question():
    assert {rule for question in QUESTIONS for rule in question.findings} == FINDINGS
    assert all(rule in questions.of_finding(rule).findings for rule in FINDINGS)


@every("question", QUESTIONS)
def test_a_question_is_about_what_exists_and_its_answer_is_short(question: Question):
    assert {*question.metrics} <= METRICS.keys() and {*question.knobs} <= every_knob().keys()
    assert question.lesson in {"", *(lesson.name for lesson in lessons()[0])}
    assert question.ask.endswith(("?", "now?")) and question.topic in TOPICS
    ends = re.findall(r"[.?!](?= |$)", question.answer.replace("Dr. ", "Dr "))
    assert 3 <= len(ends) <= 6 and question.answer.endswith(".")


def test_the_questions_stand_by_topic_and_each_is_asked_once():
    assert [topic for topic, _ in groupby(question.topic for question in QUESTIONS)] == list(TOPICS)
    for told in ([question.key for question in QUESTIONS], [question.ask for question in QUESTIONS]):
        assert len({*told}) == len(told) > 36


def test_a_key_leads_to_the_first_question_about_it():
    assert questions.of_metric("kl/k1").key == "kl_negative" and questions.of_knob("clip_high").key == "why_clip"
    assert questions.of_metric("no/such") is questions.of_knob("") is None
