"""A launcher for applications made of replicas."""

from torchx.version import __version__ as __version__
