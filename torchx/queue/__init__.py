"""The queue of this machine: jobs that wait for GPUs, processors or memory, of all users."""
