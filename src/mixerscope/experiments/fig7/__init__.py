"""Figure 7: associative treecall."""
