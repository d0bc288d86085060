"""Services beside ordinary roles on a cluster: their readiness, the order of starts, and their end."""
