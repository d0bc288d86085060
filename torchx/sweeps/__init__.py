"""Sweeps: many runs of one component with different parameters, under one handle."""

BACKEND = "sweep"
"""The scheduler in the handles of sweeps."""
