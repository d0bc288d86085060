"""A launcher for applications made of replicas."""

from torchx.version import TORCHX_IMAGE as IMAGE  # noqa: F401 - the default image of component files
from torchx.version import __version__ as __version__
