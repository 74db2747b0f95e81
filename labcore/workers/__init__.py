"""The processes that make runs: the launcher in the lab, the supervisor that it owns, and a worker for each run."""
