"""Compare's view of a sweep: small charts by value, what is best, and its queue."""
