"""Bad nodes: hosts on which replicas have failed through the host, remembered for later submissions."""
