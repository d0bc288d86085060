"""Services beside ordinary roles: the order of starts, and the probes."""
