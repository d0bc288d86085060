"""The queue of this machine: local jobs that wait for GPUs, processors or memory, of all users."""
