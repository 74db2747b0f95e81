"""The command line: the same store, the same worker, the same export as the page."""
