"""The API server of a cluster: its address, calls and errors."""
