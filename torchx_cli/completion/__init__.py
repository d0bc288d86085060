"""Completion of command lines for the shells."""
