"""Artifacts: what machines without a shared folder pass each other through an object store (`RL_LAB_ARTIFACTS`)."""
