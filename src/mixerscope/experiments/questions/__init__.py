"""Cells of Figure 3 that disagree."""
