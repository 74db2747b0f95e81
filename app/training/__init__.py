"""The pages that train: knobs, live curves, what is below them, and what is done with the open run."""
