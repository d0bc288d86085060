"""The programs on the nodes."""
