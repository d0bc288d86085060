"""Restarts of whole roles and applications on a cluster without JobSets: a job for each attempt of a role."""
