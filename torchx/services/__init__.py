"""Services and the order of starts: the rules that an application must follow."""

ENDED_WHILE_NEEDED = "a service ended by itself while it was needed"
"""The message of a service that has failed, although it may have ended with exit code 0."""
NO_LONGER_NEEDED = "no longer needed"
"""The reason to end a service."""
