"""Parameters of every model."""
