"""Measure the replicas of a job."""
