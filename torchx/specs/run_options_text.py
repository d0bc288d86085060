"""The usage text of run options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchx.specs.run_options import runopt, runopts


def usage(opts: runopts) -> str:
    """Returns the usage text: one line with all options, then each with its help."""
    from torchx.specs.run_options import get_type_name

    def line(key: str, opt: runopt) -> str:
        about = get_type_name(opt.opt_type) + ("" if opt.is_required else f", {opt.default}")
        text = "\n".join(f"            {row.strip()}".rstrip() for row in opt.help.strip().splitlines())
        return f"        {_pair(key)} ({about})\n{text}"

    required = [(key, opt) for key, opt in opts if opt.is_required]
    optional = [(key, opt) for key, opt in opts if not opt.is_required]
    pairs = [_pair(key) for key, _ in required] + [f"[{_pair(key)}]" for key, _ in optional]
    text = f"    usage:\n        {','.join(pairs)}"
    for title, group in (("required", required), ("optional", optional)):
        if group:
            text += f"\n\n    {title} arguments:\n" + "\n".join(line(key, opt) for key, opt in group)
    return text


def _pair(key: str) -> str:
    return f"{key}={key.upper()}"
