"""Lessons: predict, run, check."""

from app.lessons.page import page

page()
