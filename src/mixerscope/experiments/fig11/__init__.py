"""Figure 11: one block or two."""
