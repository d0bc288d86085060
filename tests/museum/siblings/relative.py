"""A component file inside a package, which imports its neighbour by a dot and by its plain name."""
# ok: siblings/relative.py:trainer => ["TwoTexts"]
import texts
from .texts import TwoTexts
from torchx.specs import AppDef, Role


def trainer() -> AppDef:
    assert texts.TwoTexts.__name__ == TwoTexts.__name__
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[TwoTexts.__name__])])
