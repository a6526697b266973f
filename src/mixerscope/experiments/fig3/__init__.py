"""Figure 3: associative recall."""
