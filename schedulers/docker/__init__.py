"""Runs applications in the containers of a Docker engine: ``local_docker``."""
