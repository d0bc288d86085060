"""A component file with the name of this library."""
# ok: trainer --name x => ["x"]
import torchx.specs as specs
from torchx.components import utils


def trainer(name: str) -> specs.AppDef:
    assert utils.__name__ == "torchx.components.utils"
    return specs.AppDef("a", [specs.Role("r", "i", entrypoint="e", args=[name])])
