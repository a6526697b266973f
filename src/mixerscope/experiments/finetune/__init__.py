"""Pretrained models, trained on a task that tracks a state: where the state is read, and whether it is used."""
