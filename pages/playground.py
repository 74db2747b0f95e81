"""Playground: checkpoints answer the same prompt."""

from app.playground.page import page

page()
