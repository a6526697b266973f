"""Linear algebra of probes and erasure: vectors and labels in, maps and accuracies out. It knows no model."""
