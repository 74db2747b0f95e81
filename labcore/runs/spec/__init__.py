"""The spec of a run, the names of its models, and a loop's records. Knows neither store nor disk layout."""
