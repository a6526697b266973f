"""The figures of the paper, the study of tracked states, the demo. `docs/design.md` says which rooms they use."""
