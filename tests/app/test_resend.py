"""A browser that skips drawings gets all rows of a chart in the end."""

import streamlit

from app import resend


def test_a_browser_that_sees_one_drawing_of_many_soon_gets_all_rows(monkeypatch):
    monkeypatch.setattr(streamlit, "session_state", {})
    resend.mounted("chart")
    sent = 0
    for drawing in range(1, 200):
        has_all = resend.full("chart")
        sent += has_all
        if drawing % 10 == 0:  # the only drawings that the browser sees
            if has_all:
                break
            resend.missed("chart")
    assert has_all and drawing <= 50 and sent < 40
    assert [resend.full("chart") for _ in range(resend.MOST)][-1] is False, "then only what is new"


def test_a_chart_that_misses_nothing_gets_all_rows_once(monkeypatch):
    monkeypatch.setattr(streamlit, "session_state", {})
    resend.mounted("chart")
    assert [resend.full("chart") for _ in range(3)] == [True, False, False]
    assert not resend.full("another")
