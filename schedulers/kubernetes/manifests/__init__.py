"""The manifests of an application: pure functions from roles to objects."""
