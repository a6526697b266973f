"""Figure 8: Mamba's convolution on treecall."""
