"""Decides on a node whether the failure of a replica is retried.

The script of a job runs it as ``.node/retries.py``, which begins with copies of the modules that it imports.
"""

import json
import os
import sys

from torchx.scheduling.retry_rules import LONGEST_TAIL, Failure, RetryRules, lines_of


def main(place: str, node: str, once: str) -> int:
    """Returns 0 if the last failure of a replica is not retried, else 1.

    Args:
        place: the folder of the replica.
        node: the folder with the rules.
        once: prefix of a file that only the first failure of an attempt creates; empty if all failures count.
    """
    attempt = max(int(name[8:]) for name in os.listdir(place) if name.startswith("attempt-"))
    folder = os.path.join(place, "attempt-" + str(attempt))
    if once:
        try:
            os.close(os.open(once + "-" + str(attempt), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return 1  # the others have failed because of the first one, or after it
    with open(os.path.join(node, "retry_rules.json")) as file:
        rules = RetryRules.of(json.load(file))
    path = os.path.join(folder, "end.json")
    with open(path) as file:
        end = json.load(file)
    lines = lines_of(tail(os.path.join(folder, "combined.log")) or tail(os.path.join(folder, "stderr.log")))
    failure = Failure(end.get("exit_code"), end.get("signal"), lines, end.get("cause"))
    refusal = rules.refusal(failure)
    if not refusal:
        return 1
    end.setdefault("cause", "")
    end["refused"] = refusal
    end["msg"] = "; ".join(text for text in (end.get("msg"), refusal) if text)
    with open(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(end, file)
    os.rename(path + ".part", path)
    return 0


def tail(path: str) -> bytes:
    """Returns the last bytes of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LONGEST_TAIL, 0))
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
