"""Documented door: turning texts into values of a type."""

from torchx.discovery.types.decoding import (
    decode,
    decode_from_string,
    decode_optional,
    get_argparse_param_type,
    is_bool,
    is_primitive,
    none_throws,
    to_list,
)
from torchx.pairs import to_dict

__all__ = [
    "decode",
    "decode_from_string",
    "decode_optional",
    "get_argparse_param_type",
    "is_bool",
    "is_primitive",
    "none_throws",
    "to_dict",
    "to_list",
]
