"""Files that hold keys and passwords: known by their names, or by what stands in them."""

from __future__ import annotations

import os
import re

SECRETS = (
    ".env", ".env.*", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass", ".git-credentials",
    "credentials.json", "kubeconfig", "*.kubeconfig", ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker",
)  # fmt: skip
"""Names of what holds passwords, tokens and keys."""

KEYS = (
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "*.p12",
    "*.pfx",
    "*.ppk",
)
"""Names of private keys, whatever stands in them."""

MAYBE_KEYS = (".pem", ".key")
"""Ends of the names of files that are private keys, public certificates, or something else: they are read."""

LARGEST_KEY = 1 << 20
"""Bytes of such a file that are read: a key may follow the certificates of a chain."""

_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")


def is_private_key(path: str) -> bool:
    """Returns True if a private key stands in a file; False for what is no regular file or cannot be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return holds_private_key(os.read(opened, LARGEST_KEY))
    except OSError:
        return False
    finally:
        os.close(opened)


def holds_private_key(data: bytes) -> bool:
    """Returns True if a private key stands in a text.

    >>> holds_private_key(b"-----BEGIN RSA PRIVATE KEY-----")
    True
    """
    return _KEY.search(data) is not None
