"""Arguments without a type."""
# lint: 10:13 trainer: argument `cfg` has no type annotation; add one, e.g. `cfg: str`
# lint: 10:18 trainer: argument `lr` has no type annotation; add one, e.g. `lr: float`
# lint: 10:27 trainer: argument `words` has no type annotation; add one, e.g. `words: str`
# run: trainer => no_annotation.py:trainer is not a valid component:
# run: trainer --help => no_annotation.py:trainer is not a valid component:
from torchx.specs import AppDef


def trainer(cfg, lr=0.1, *words) -> AppDef:
    return AppDef("a")
