"""Artifacts: the files that machines without a shared folder exchange through an object store (`RL_LAB_ARTIFACTS`)."""
