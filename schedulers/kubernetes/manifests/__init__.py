"""Converts applications to manifests, with pure functions."""
