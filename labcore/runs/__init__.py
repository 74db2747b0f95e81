"""Runs: their specs, store and files, knob history, forks, sweeps, imported runs, search and trash."""
