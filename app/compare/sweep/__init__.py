"""Compare's view of a sweep: small charts by value, the best setting, and its queue."""
