"""The scheduler ``kubernetes``: runs applications on a Kubernetes cluster."""
