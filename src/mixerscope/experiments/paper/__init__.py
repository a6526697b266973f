"""What the figures of the paper have in common: their sweeps, what is kept of runs, tables, claims and the page."""
