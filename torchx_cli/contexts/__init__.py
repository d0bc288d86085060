"""Files of replicas, and machines behind ssh: `torchx cp`, `torchx context`, `--context`."""
