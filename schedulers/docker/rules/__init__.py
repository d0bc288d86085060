"""The rules of an application in containers, beyond those of :mod:`torchx.supervisor.policy`."""
