"""Libraries for the programs in the replicas; the newer `torchx.tracker` records more."""
