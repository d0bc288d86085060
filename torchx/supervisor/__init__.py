"""The supervisor: a small separate process that starts replicas, saves their output and ends them.

It imports neither the specs nor a scheduler, since the job's record has all it needs. So it is small and
starts fast.
"""
