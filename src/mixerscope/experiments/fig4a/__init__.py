"""Figure 4a: Mamba's convolution on associative recall."""
