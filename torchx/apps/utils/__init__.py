"""Small programs for the replicas of an application: `python -m torchx.apps.utils.NAME`."""
