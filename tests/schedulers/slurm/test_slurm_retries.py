"""The program of a Slurm job that applies the rules of retries on a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from slurmscripts import SH
from slurmsteps import StepJob

from torchx.schedulers.shared.batch.node.files import node_file
from torchx.specs import AppDef, RetryPolicy, Role

APPLICATION, ROLE, REPLICA = RetryPolicy.APPLICATION, RetryPolicy.ROLE, RetryPolicy.REPLICA


def role(name: str, script: str, policy: RetryPolicy, retries: int) -> Role:
    args = ["-c", script.replace("$", "$$")]
    return Role(name, "", entrypoint=SH, args=args, retry_policy=policy, max_retries=retries)


def attempts_and_code(home: Path, *roles: Role) -> tuple[list[int], int]:
    """Returns the number of attempts of each role, and the exit code of the job."""
    given = StepJob(AppDef("a", list(roles)), home, requeue=False)
    code = given.run()
    return [len(each.replicas[0].attempts) for each in given.status().roles_statuses], code


@pytest.mark.parametrize(
    ("line", "is_first", "refused"), [("boom", True, True), ("bang", True, False), ("boom", False, False)]
)
def test_the_first_failure_of_an_attempt_decides(
    tmp_path: Path, line: str, is_first: bool, refused: bool
) -> None:
    (tmp_path / "retries.py").write_text(node_file("judge.py"))
    (tmp_path / "retry_rules.json").write_text('{"retry_on": null, "no_retry_on": ["log:boom"]}')
    attempt = tmp_path / "w" / "0" / "attempt-3"
    attempt.mkdir(parents=True)
    (attempt / "end.json").write_text('{"exit_code": 3}')
    (attempt / "combined.log").write_text(f"{line}\n")
    if not is_first:
        (tmp_path / "judged-3").touch()
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(tmp_path / "retries.py")),
            *(str(attempt.parent), str(tmp_path), str(tmp_path / "judged")),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0 if refused else 1, "")
    assert ("not retried: log:boom" in (attempt / "end.json").read_text()) is refused


@pytest.mark.parametrize("policy", [REPLICA, ROLE])
def test_retries_are_counted_for_the_whole_job(tmp_path: Path, policy: RetryPolicy) -> None:
    """They are not counted again after a restart of all roles."""
    here = f"until [ -e {tmp_path}/up ]; do sleep 0.05; done"
    # fails in its attempts 1 and 3; the other role fails while attempt 2 runs
    one = role(
        "one",
        f"{here}; case $TORCHX_ATTEMPT in 2) touch {tmp_path}/two; exec sleep 60;; esac; exit 7",
        policy,
        1,
    )
    then = f"until [ -e {tmp_path}/two ]; do sleep 0.05; done; exit 8"
    two = role(
        "two", f"touch {tmp_path}/up; test $TORCHX_ATTEMPT = 2 && exec sleep 60; {then}", APPLICATION, 1
    )
    assert attempts_and_code(tmp_path, one, two) == ([3, 2], 7)


@pytest.mark.parametrize("policy", [REPLICA, ROLE])
def test_role_that_has_failed_decides_about_restart_of_all(tmp_path: Path, policy: RetryPolicy) -> None:
    """A role without retries left ends the job, even if another role may restart all."""
    held = f"touch {tmp_path}/up; exec sleep 60"
    one = role("one", f"until [ -e {tmp_path}/up ]; do sleep 0.05; done; exit 7", policy, 0)
    assert attempts_and_code(tmp_path, one, role("two", held, APPLICATION, 3)) == ([1, 1], 7)


def test_each_role_counts_its_restarts_of_all(tmp_path: Path) -> None:
    """The other role has none, and does not fail."""
    held = f"touch {tmp_path}/up$TORCHX_ATTEMPT; exec sleep 60"
    one = f"until [ -e {tmp_path}/up$TORCHX_ATTEMPT ]; do sleep 0.05; done; exit $((5 + TORCHX_ATTEMPT))"
    roles = role("one", one, APPLICATION, 2), role("two", held, APPLICATION, 0)
    assert attempts_and_code(tmp_path, *roles) == ([3, 3], 8)


@pytest.mark.parametrize(
    ("rules", "attempts"),
    [
        ({}, 2),
        ({"no_retry_on": ["oom"]}, 1),
        ({"retry_on": ["3", "9"]}, 1),
        ({"retry_on": ["9", "out-of-memory"]}, 2),
    ],
)
@pytest.mark.parametrize("policy", [APPLICATION, ROLE])
def test_rules_hold_for_step_that_is_out_of_memory(
    tmp_path: Path, policy: RetryPolicy, rules: dict[str, list[str]], attempts: int
) -> None:
    """Slurm ends all processes of the step, so only its message shows the cause."""
    message = "slurmstepd: error: StepId=77.0 exceeded memory limit (99 > 64), being killed"
    script = f'echo "{message}" >> "${{TORCHX_CHECKPOINT_DIR%/*}}/batch.log"; exit 9'
    given = StepJob(AppDef("a", [role("one", script, policy, 1)]), tmp_path, requeue=False, **rules)
    given.run()
    (replica,) = given.status().roles_statuses[0].replicas
    assert len(replica.attempts) == attempts
