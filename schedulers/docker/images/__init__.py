"""Images: planned, built from workspaces, pulled, pushed and pruned."""
