"""The spec of a run, the names of its models, and the records that a loop yields. Knows neither store nor disk
layout."""
