"""Files with keys and passwords, detected by name or content."""

from __future__ import annotations

import os
import re

SECRETS = (
    ".env", ".env.*", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass", ".git-credentials",
    "credentials.json", "kubeconfig", "*.kubeconfig", ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker",
)  # fmt: skip
"""Names of files and folders with passwords, tokens and keys."""

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
"""Names of private keys, excluded without reading them."""

MAYBE_KEYS = (".pem", ".key")
"""Suffixes of files that may be private keys or public certificates, so their content is checked."""

LARGEST_KEY = 1 << 20
"""Bytes read of such a file; a key may follow a chain of certificates."""

_KEY = rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----"


def is_private_key(path: str) -> bool:
    """Returns True if a file contains a private key; False if it is a link or cannot be read."""
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
    """Returns True if a text contains a private key.

    >>> holds_private_key(b"-----BEGIN RSA PRIVATE KEY-----")
    True
    """
    return re.search(_KEY, data) is not None
