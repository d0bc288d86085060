"""The evidence of causes: the lines that programs print before they fail.

This module depends on nothing else, since jobs of Slurm run a copy of it on their nodes, with any Python 3.
"""

import re
from typing import Callable, Iterable, List, Optional, Sequence, Tuple

_NCCL_TIMEOUT = r"collective operation timeout|ProcessGroupNCCL.*\btimed out\b"
_LINES = (
    ("cuda_out_of_memory", r"(CUDA|HIP) out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    ("nccl_timeout", _NCCL_TIMEOUT),
    ("nccl_error", r"\bNCCL error\b|\bnccl(\w+)Error\b|\bDistBackendError\b"),
    (
        "cuda_error",
        r"\bCUDA error\b|\bcudaError\w+|\bCU(BLAS|DNN)_STATUS_(?!SUCCESS)\w+|device-side assert|"
        r"[Nn]o CUDA GPUs are available|Found no NVIDIA driver",
    ),
    (
        "import_error",
        r"^(ModuleNotFoundError|ImportError)\b|^\S*python\S*: (No module named|Error while finding module) ",
    ),
    ("syntax_error", r"^(SyntaxError|IndentationError|TabError)\b"),
    ("disk_full", r"No space left on device|Disk quota exceeded"),
    ("permission_denied", r"^PermissionError\b|[Pp]ermission denied|Read-only file system"),
    ("port_in_use", r"[Aa]ddress already in use|EADDRINUSE"),
    (
        "allocation_failed",
        r"^(\w+\.)*_?(ArrayMemoryError|MemoryError)\b|std::bad_alloc|[Cc]an(not|'t) allocate memory",
    ),
    ("assertion", r"^AssertionError\b|: Assertion .* failed"),
)

_USAGE = re.compile(r"^usage: |\berror: (argument |the following arguments |unrecognized arguments)", re.I)
_NOT_FOUND = re.compile(r"not found|No such file|[Pp]ermission denied|bad interpreter|cannot execute", re.I)
_WRAPPER = r"(?:\w+\.)*(?:ChildFailedError|SystemExit|CalledProcessError|ProcessExitedException)\b"
_FATAL = re.compile(
    rf"^(?!{_WRAPPER})(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
    rf"(?:Error|Exception|Interrupt|Exit|Expired|Timeout|Iteration)(?::|$)|{_NCCL_TIMEOUT}"
)
_TERMINATED = re.compile(rf"^(?:what\(\): |terminate called after throwing |{_WRAPPER})")
_PREFIX = r"^(?:\[[\w /.:-]{1,80}\]:? ?)+"
_APPENDIX = (
    r"\s*(?:Fatal Python error: |(?:Current thread|Thread) 0x|Stack \(most recent |Extension modules: |"
    r"Python runtime state: |File \"[^\"]*\", line \d+ in |<(?:no Python frame|invalid frame)>|\.\.\.$|"
    r"Exception raised from \w+ at |frame #\d+: )|  (?:time|host|rank|exitcode|error_file|traceback) {0,6}: "
)
_FAILED_RANK = r"(?m)^Root Cause (?:.*\n){1,5}?  rank *: (\d+) \(local_rank: "
LAST_LINES = 50
"""Last lines of an output in which its cause is searched, without the lines that follow the cause."""
NOT_RUN = (126, 127)
"""The exit codes of a shell that cannot run a program."""
BEFORE_PROGRAM = {94: ("preflight", "torchx preflight failed"), 93: ("setup_once", "torchx setup failed")}
"""The exit codes of steps that fail before the program, as in their sources: the cause, and its line."""


def printed_cause(exit_code: Optional[int], signal: Optional[str], lines: Sequence[str]) -> Tuple[str, str]:
    """Returns the cause that the last lines of the output name, and the line; both empty if none does.

    After a signal, the program has printed its cause only if it has aborted itself.

    Args:
        exit_code: the exit code of the program.
        signal: the name of the signal that ended it.
        lines: its last lines, without control codes.

    >>> printed_cause(1, None, ["ModuleNotFoundError: No module named 'x'"])[0]
    'import_error'
    >>> printed_cause(None, "SIGKILL", ["ModuleNotFoundError: No module named 'x'"])
    ('', '')
    """
    if signal not in (None, "SIGABRT"):
        return "", ""
    texts = (re.sub(_PREFIX, "", line).strip() for line in without_appendices(_of_failed_rank(lines)))
    plain = [text for text in texts if text][-LAST_LINES:]
    before, mark = BEFORE_PROGRAM.get(exit_code or 0, ("", "\n"))
    line = _last(plain, lambda line: line.startswith(mark))
    if line:
        return before, line
    if exit_code in NOT_RUN:
        return "missing_program", _last(plain, _NOT_FOUND.search)
    if _last(plain, _FATAL.search):
        usage = ""
    else:
        usage = _last(plain, _USAGE.search)
    if exit_code == 2 and usage:
        return "usage_error", usage
    line = _line_of(plain)
    return _cause_of(line) or ("exception" if line else ""), line


def _line_of(plain: Sequence[str]) -> str:
    """Returns the line that names the cause: the last fatal one has ended the program."""
    line = _last(plain, _FATAL.search) or _last(plain, _cause_of)
    if _cause_of(line) == "nccl_error":  # which a timeout ends with, too
        line = _last(plain, re.compile(_NCCL_TIMEOUT).search) or line
    return line or _last(plain, _TERMINATED.search)


def without_appendices(lines: Iterable[str]) -> List[str]:
    """Returns lines without those that follow the cause: stacks of a fatal error, torchrun's report, frames.

    >>> without_appendices(["E: x", "Fatal Python error: Aborted", "", '  File "a.py", line 1 in f'])
    ['E: x']
    """
    kept = [line for line in lines if not re.match(_APPENDIX, re.sub(_PREFIX, "", line))]
    while kept and not re.sub(_PREFIX, "", kept[-1]).strip():
        kept.pop()
    return kept


def _of_failed_rank(lines: Sequence[str]) -> Sequence[str]:
    """Returns the lines of the rank that failed first by torchrun's report; all lines without any."""
    rank = re.search(_FAILED_RANK, "\n".join(lines))
    if rank is None:
        return lines
    own = re.compile(rf"\[[^\]\d]*{rank[1]}\]:|\[[^\]]*\]:\[rank{rank[1]}\]:")
    return list(filter(own.match, lines)) or lines


def _last(lines: Sequence[str], chosen: Callable[[str], object]) -> str:
    return next(filter(chosen, reversed(lines)), "")


def _cause_of(line: str) -> Optional[str]:
    return next((name for name, pattern in _LINES if re.search(pattern, line)), None)
