"""The files of a pod on the fake cluster: ConfigMaps, Secrets and empty folders, as folders here."""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from fakecluster.store import Object, Store


class Volumes:
    """Folders that stand for the volumes of one pod; other volumes, such as shared memory, are left out."""

    def __init__(self, store: Store, collection: str, pod: Object) -> None:
        self._holder = tempfile.TemporaryDirectory()
        self._folders: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes") or []:
            name = volume["name"]
            if not {"configMap", "projected"} & {*volume} and volume.get("emptyDir") != {}:
                continue
            folder = self._folders[name] = Path(self._holder.name) / name
            folder.mkdir()
            if "configMap" in volume:
                maps = collection.replace("/pods", "/configmaps")
                for key, data in store.get(maps, volume["configMap"]["name"])["binaryData"].items():
                    (folder / key).write_bytes(base64.b64decode(data))
            for source in volume.get("projected", {}).get("sources", []):
                secrets = collection.replace("/pods", "/secrets")
                for key, data in store.get(secrets, source["secret"]["name"])["data"].items():
                    (folder / key).write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self._holder.cleanup()

    def found(self, container: Object, word: str) -> str:
        """A word of a container, with paths in its mounts as this machine has them."""
        for mount in container.get("volumeMounts") or []:
            if mount["name"] in self._folders:
                path = re.escape(mount["mountPath"]) + r"(?![\w.-])"
                word = re.sub(path, str(self._folders[mount["name"]]), word)
        return word

    def cwd(self, container: Object) -> str | None:
        """Where a container starts; None where its image says so."""
        folder = container.get("workingDir")
        return self.found(container, folder) if folder else None

    def prepare(self, pod: Object) -> Any:
        """Runs the init containers; returns how one of them ended that failed."""
        for container in pod["spec"].get("initContainers") or []:
            words = [
                self.found(container, w) for w in [*container["command"], *(container.get("args") or [])]
            ]
            try:
                done = subprocess.run(words, capture_output=True, text=True)
            except OSError as error:
                return {
                    "exitCode": 128,
                    "reason": "StartError",
                    "message": f'exec: "{words[0]}": {error.strerror}',
                }
            if done.returncode:
                return {"exitCode": done.returncode, "reason": "Error", "message": done.stderr}
        return None
