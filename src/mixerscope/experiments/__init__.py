"""Experiments built from the public API alone."""
