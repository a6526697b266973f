"""Figure 4b: the convolution of Based on associative recall."""
