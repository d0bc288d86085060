"""Components whose code fails, each in its own way."""
# run: fails --city Atlantis => fails_when_called.py:fails failed: ValueError: no such city: Atlantis  (fails_when_called.py:16, raise ValueError(f"no such city: {name}\nlook at a map"))
# run: exits => fails_when_called.py:exits failed: SystemExit: 4  (fails_when_called.py:25, raise SystemExit(4))
# run: nothing => fails_when_called.py:nothing returned NoneType, expected an AppDef  (fails_when_called.py:28)
# run: text => fails_when_called.py:text returned str, expected an AppDef  (fails_when_called.py:32)
# run: misspelt => unknown named resource `gpu.smal`  (fails_when_called.py:37, return specs.AppDef("a", [specs.Role("r", "i", resource=specs.resource(h="gpu.s…)
# run: deep => fails_when_called.py:deep failed: JSONDecodeError: Expecting value: line 1 column 1 (char 0)  (fails_when_called.py:41, json.loads("no json"))
# run: lazy => fails_when_called.py:lazy failed: ModuleNotFoundError: No module named 'surely_not_installed'  (fails_when_called.py:46, import surely_not_installed)
import json

import torchx.specs as specs
from torchx.specs import AppDef


def find(name: str) -> str:
    raise ValueError(f"no such city: {name}\nlook at a map")


def fails(city: str) -> AppDef:
    find(city)
    return AppDef("a")


def exits() -> AppDef:
    raise SystemExit(4)


def nothing() -> AppDef:
    AppDef("a")


def text() -> AppDef:
    return "a"


def misspelt() -> AppDef:
    return specs.AppDef("a", [specs.Role("r", "i", resource=specs.resource(h="gpu.smal"))])


def deep() -> AppDef:
    json.loads("no json")
    return AppDef("a")


def lazy() -> AppDef:
    import surely_not_installed

    return AppDef("a")
