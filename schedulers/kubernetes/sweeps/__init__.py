"""Sweeps: many runs as one Indexed Job, whose indexes are applications of their own."""
