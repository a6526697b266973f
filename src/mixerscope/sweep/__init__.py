"""Sweeps: many runs from one description, stacked into cohorts, packed into jobs, executed and timed."""
