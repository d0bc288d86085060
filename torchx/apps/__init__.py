"""Small programs for the replicas of an application."""
