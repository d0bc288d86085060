"""Sweeps: many runs of one component with different parameters, under one handle."""
