"""Helpers shared by several schedulers."""
