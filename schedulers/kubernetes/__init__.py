"""Runs applications on a Kubernetes cluster: ``kubernetes``."""
