"""Figure 1: which component associates and which retrieves."""
