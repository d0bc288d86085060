"""Stalls of local jobs: find them, report them, react to them."""
