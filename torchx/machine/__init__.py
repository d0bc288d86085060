"""Resources of the local machine: processes, ports, files and locks."""
