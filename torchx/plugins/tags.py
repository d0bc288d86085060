"""Tags that a registered resource carries."""

from __future__ import annotations


class resource_tags:
    """Keys of ``Resource.tags`` that registration sets."""

    RESOURCE_NAME = "torchx/named_resources.name"
    """The name it was registered under."""

    IS_FRACTIONAL = "torchx/named_resources.is_fractional"
    """Whether it is a part of a registered resource, such as half of a machine."""
