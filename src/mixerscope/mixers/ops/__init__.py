"""Arithmetic shared by mixers, one definition each."""
