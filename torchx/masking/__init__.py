"""Masking of secrets in all output and logs of this project."""

from torchx.masking.data import SHORTEST as SHORTEST
from torchx.masking.data import SecretValue as SecretValue
from torchx.masking.data import mask as mask
from torchx.masking.data import mask_arguments as mask_arguments
from torchx.masking.data import secrets_in_arguments as secrets_in_arguments
from torchx.masking.data import secrets_in_environment as secrets_in_environment
from torchx.masking.data import secrets_in_roles as secrets_in_roles
from torchx.masking.names import MASK as MASK
from torchx.masking.names import add_patterns as add_patterns
from torchx.masking.names import add_references as add_references
from torchx.masking.names import forget_patterns as forget_patterns
from torchx.masking.names import looks_secret as looks_secret
from torchx.masking.text import add_values as add_values
from torchx.masking.text import forget_values as forget_values
from torchx.masking.text import mask_text as mask_text
from torchx.masking.text import values_in as values_in
