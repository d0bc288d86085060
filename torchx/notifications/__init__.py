"""Notifications about the end of applications: their files, and the process that sends them."""
