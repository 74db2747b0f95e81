"""Watched runs: convert a trainer's lines to the lab's metrics, samples and settings."""
