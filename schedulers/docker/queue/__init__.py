"""Applications in containers that wait for the resources of this machine."""
