"""The pages that train: knobs, live curves, the tabs below them, and actions on the open run."""
