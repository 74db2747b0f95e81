"""Side by side: the curves of several runs, what can be said of them over seeds, and runs of other tools."""
