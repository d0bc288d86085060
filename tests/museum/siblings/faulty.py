"""Fails when it is imported."""

HALF = 1 / 0
