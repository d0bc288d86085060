"""A type that has a stand-in at run time."""
# ok: trainer --data x => []
# ok: looped --f 1 => []
from typing import TYPE_CHECKING

from torchx.specs import AppDef

if TYPE_CHECKING:
    from elsewhere import Data
else:
    Data = str

for Kind in (int,):
    with open(__file__) as Handle:
        pass


def trainer(data: Data) -> AppDef:
    return AppDef("a")


def looped(f: Kind) -> AppDef:
    return AppDef("a")
