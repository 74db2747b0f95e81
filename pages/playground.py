"""Playground: checkpoints answer the same prompt."""

from app import playground

playground.page()
