"""The catalog, as plain data: algorithms, tasks, models, knobs and metrics. Imports no torch."""
