"""Figure 12: one to three blocks on associative recall."""
