"""Stalls of containers: their files, their detection, their report."""
