"""Figure 13: sibling queries on treecall."""
