"""Read the logs of other trainers while they are written, and send them to the lab as watched runs."""
