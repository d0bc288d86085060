"""The Docker engine: its address, and its API over HTTP."""
