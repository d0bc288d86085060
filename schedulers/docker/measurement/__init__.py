"""Measurements of the containers of an application while it runs."""
