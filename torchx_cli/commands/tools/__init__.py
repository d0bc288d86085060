"""The commands that concern no application: set-up, definitions and this machine."""
