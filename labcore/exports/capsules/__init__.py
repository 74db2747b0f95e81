"""A run as one zip: packed, read without trust, taken in, and made again to be compared bit for bit."""
