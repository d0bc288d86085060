"""JSON Schemas of the output of the commands, and the codes of errors."""
