"""The supervisor: a small process of its own that starts replicas, keeps their output and ends them.

It imports neither the specs nor a scheduler: what it needs is in the job's record, so it stays small and
starts at once.
"""
