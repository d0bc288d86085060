"""Time limits of applications in containers."""
