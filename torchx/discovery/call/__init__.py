"""Calls a component: flags, arguments, and the application that it returns."""
