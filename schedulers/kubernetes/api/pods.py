"""Pods without the fields that are not read: a tenth of their JSON, as an application may have thousands."""

from __future__ import annotations

from typing import Any

from torchx.json_shape import ANY_KEY, Shape, alternatives, fits, printable
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.api.shape import OBJECT, shaped

INDEX = "batch.kubernetes.io/job-completion-index"
_KEPT = (
    "batch.kubernetes.io/job-",
    "jobset.sigs.k8s.io/restart-attempt",
    "volcano.sh/job-retry-count",
    "torchx.pytorch.org/",
)
"""The beginnings of the labels and annotations that are read."""


class SmallPods:
    """Reduces the pods of lists to the fields of the table; equal lists and labels are one object in memory.

    The parts are not to be changed.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def __call__(self, data: Any) -> Object | None:
        """Returns a pod with the fields that are read, or None if it has no name.

        Args:
            data: the pod as received; one with fields of a wrong type is treated as any other object.
        """
        try:
            pod: Object = {key: self._small(data[key], OBJECT[key]) for key in ("metadata", "spec", "status")}
            metadata = pod["metadata"]
            if not metadata["name"] or "uid" not in metadata:
                return shaped(data)
        except (TypeError, KeyError, AttributeError):
            return shaped(data)
        for key in ("annotations", "labels"):
            metadata[key] = {k: v for k, v in metadata.get(key, {}).items() if k.startswith(_KEPT)}
        if metadata["annotations"].get(INDEX) == metadata["labels"].get(INDEX):
            metadata["labels"].pop(INDEX, None)  # so that those of all replicas are equal
        metadata["labels"] = self._shared(metadata["labels"])
        return pod

    def _small(self, value: Any, shape: Shape) -> Any:
        """Returns a value with the fields of its shape.

        Raises:
            TypeError: it has another shape.
        """
        if isinstance(shape, list):
            return self._shared([self._small(each, shape[0]) for each in value])
        if isinstance(shape, dict):
            parts = [(key, each, shape.get(key) or shape.get(ANY_KEY)) for key, each in value.items()]
            return {key: self._small(each, inner) for key, each, inner in parts if inner and each is not None}
        if type(value) is str and shape is str:
            return printable(value)
        if not any(fits(value, each) for each in alternatives(shape)):
            raise TypeError(type(value).__name__)
        return value

    def _shared(self, part: Any) -> Any:
        return self._parts.setdefault(repr(part), part)
