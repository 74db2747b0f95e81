"""The training loops: online, preference and SFT. Each is a generator of records."""
