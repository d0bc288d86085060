"""The commands for sweeps: many runs of one component."""
