"""The documented name of :mod:`torchx.specs.notify`."""

from torchx.specs.notify import Notify as Notify

__all__ = ["Notify"]
