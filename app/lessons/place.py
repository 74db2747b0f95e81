"""The link parameters of the page Lessons, and its style. To go there from the page itself takes a button: Streamlit's
links to the page that is open do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from app import link
from app.link import param
from labcore.analysis.lessons.folders import NEW


@dataclass(frozen=True)
class Place:
    """The open lesson by its name; empty for the list of all. `write`: the own lesson that is edited, or NEW."""

    lesson: str = param("")
    write: str = param("")


def go(name: str = "") -> None:
    """Open a lesson, or the list of all."""
    link.go(link.written(Place(name)))


def write(name: str = NEW) -> None:
    """Open the editor with a lesson of one's own, or with the draft of a new one."""
    link.go(link.written(Place(write=name)))


CSS = """<style>
.rl-lesson small{display:block;font-size:12.5px;opacity:.75;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.rl-lesson img{display:block;width:100%;height:auto}
.rl-lesson>div{display:flex;flex-wrap:wrap;gap:0 14px;font-size:13px}
.rl-lesson i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:4px}
.st-key-first_hour .stColumn button p{white-space:normal;overflow:visible}
.st-key-first_hour .stColumn button{height:auto}
.st-key-lesson_head h2{padding-top:0}
.st-key-lesson_text textarea{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.st-key-lesson_cards .stButton button,.st-key-first_hour .stColumn button{text-align:left;justify-content:flex-start;
  padding:0;min-height:0}
.st-key-lesson_cards .stButton button p{font-size:16px;line-height:1.35}
.st-key-first_hour .stColumn button p{display:block;font-size:14px;line-height:1.35;position:relative;
  padding:2px 0 2px 30px}
.st-key-first_hour .stColumn strong{position:absolute;left:0;top:0;display:grid;place-items:center;width:22px;
  height:22px;border-radius:50%;font-size:13px;color:#fff;background:light-dark(#0072B2,#1F6FA8)}
.st-key-lesson_introduction p{font-size:17px;line-height:1.5;max-width:68ch}
.st-key-first_hour{background:color-mix(in srgb,var(--st-primary-color,#0072B2) 5%,transparent)}
</style>"""
