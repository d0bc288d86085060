"""A component file with the name of an installed package, which it and the library use."""
# ok: trainer --doc a:[1,2] => ["{'a': [1, 2]}"]
import yaml
from torchx.specs import AppDef, Role


def trainer(doc: str) -> AppDef:
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[str(yaml.safe_load(doc.replace(":", ": ")))])])
