"""The live view of applications and their replicas."""
