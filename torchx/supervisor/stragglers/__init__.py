"""Slow ranks of an application with a supervisor: its steps are compared, and stragglers are reported."""
