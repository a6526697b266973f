"""Figure 5: what Mamba's convolutions carry."""
