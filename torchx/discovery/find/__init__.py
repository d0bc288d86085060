"""Finds a component by its name and imports its file."""
