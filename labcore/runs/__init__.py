"""A run as data: what it is to do, what it has done, and where that is kept. Who makes it is in `labcore.workers`."""
