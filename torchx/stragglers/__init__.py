"""Slow ranks: the steps that ranks report, their comparison, and the record of both."""
