"""The trackers that come with torchx."""
