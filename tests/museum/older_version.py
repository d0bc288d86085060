"""A file that was written for a scheduler of an older version."""
# run: trainer => older_version.py cannot be imported: ModuleNotFoundError: No module named 'torchx.schedulers.ray_scheduler'  (older_version.py:3, from torchx.schedulers.ray_scheduler import RayScheduler)
from torchx.schedulers.ray_scheduler import RayScheduler
from torchx.specs import AppDef


def trainer() -> AppDef:
    return AppDef("a")
