"""Probes, which observe a session: answers, one batch under all algorithms, samples and lines for the page."""
