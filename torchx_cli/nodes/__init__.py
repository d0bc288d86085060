"""The command `torchx nodes`."""
