"""Duties that several engines share."""
