"""Figure 10: treecall with pairs held out."""
