"""Runs that another program trains: what it writes, read as the lab's metrics, samples and settings."""
