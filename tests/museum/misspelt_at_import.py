"""A sentence of this library, from the file's own line."""
# run: trainer => misspelt_at_import.py cannot be imported: unknown named resource `gpu.smal`  (misspelt_at_import.py:5, HOST = specs.resource(h="gpu.smal"))
import torchx.specs as specs

HOST = specs.resource(h="gpu.smal")


def trainer() -> specs.AppDef:
    return specs.AppDef("a")
