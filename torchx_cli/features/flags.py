"""The flags of features of other packages: added to the command `run`, and applied to an application."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer

from torchx.errors import UsageError
from torchx.json_limits import Object, compact_json, without_empty
from torchx.lazy import lazy_imports
from torchx.plugins.foreign import foreign
from torchx.settings import FEATURE, POLICIES
from torchx.suggestions import did_you_mean
from torchx_cli.features.installed import HINT, all_features, load, points
from torchx_cli.flags import name_of, set_flags, split_list
from torchx_cli.terminal.masking import mask

with lazy_imports:
    from torchx_cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchx.config import Config
    from torchx.features import Feature, Flag
    from torchx.specs.app import AppDef
    from torchx_cli.run_request import RunRequest


def extend(command: Any) -> bool:
    """Adds the flags of all installed features to the command `run`; built-in flags take precedence.

    Returns:
        True if it has added a flag.
    """
    names = {param.name for param in command.params}
    spellings = {text for param in command.params for text in param.opts}
    rows: list[Flag] = []
    for _, feature in all_features():
        for row in feature.flags:
            if name_of(row) not in names and spellings.isdisjoint(row.flag.split()):
                names.add(name_of(row))
                spellings.update(row.flag.split())
                rows.append(row)
    if rows:
        function = inspect.unwrap(command.callback)
        set_flags(function, [*run.FLAGS, *rows])
        app = typer.Typer(add_completion=False)
        app.command()(function)
        made = typer.main.get_command(app)
        command.params, command.callback = made.params, made.callback
    return bool(rows)


def take(request: RunRequest, flags: Mapping[str, Any], config: Config) -> None:
    """Adds features to a request: those with a flag, and those with a section `[feature:NAME]`.

    Raises:
        PluginError: a feature fails.
        UsageError: a configured feature is not installed, or the value of a flag is invalid.
    """
    configured = configured_features(config)
    for name, feature in {**dict(all_features()), **configured}.items():
        values = without_empty({name_of(row): flags.get(name_of(row)) for row in feature.flags})
        if name in configured:
            values = settings_of(name, feature, config) | values
        if values or name in configured:
            add(request, name, feature, values)


def configured_features(config: Config) -> dict[str, Feature]:
    """Returns the features with a section `[feature:NAME]` by name."""
    found = points()
    names = config.sections("feature")
    for name in names:
        if name not in found:
            known = f"installed features: {', '.join(found) or 'none'}"
            message = f"the feature of the section [feature:{name}] is not installed"
            raise UsageError(message, hint=did_you_mean(name, found, known))
    return {name: load(found[name]) for name in names}


def settings_of(name: str, feature: Feature, config: Config) -> Object:
    """Returns the flags of a feature that its section sets."""
    rows = {name_of(row): row for row in feature.flags}
    values: Object = {}
    for key, setting in config.section(f"feature:{name}").items():
        if key not in rows:
            hint = did_you_mean(key, rows, f"keys: {', '.join(rows)}")
            raise UsageError(f"{setting.origin}: unknown key `{key}`", hint=hint)
        values[key] = setting.value
        if rows[key].repeats:
            values[key] = split_list(setting.value)
    return values


def add(request: RunRequest, name: str, feature: Feature, values: Object) -> None:
    """Adds a feature and its policies to a request."""
    with foreign(f"the feature `{name}` failed", HINT):
        policies = list(feature.policies(values))
    request.features[name] = values
    if not policies:
        return
    if any(f"{POLICIES}=" in text for text in request.scheduler_args) or POLICIES in (request.options or {}):
        message = f"the run option `{POLICIES}` cannot be combined with the feature `{name}`"
        raise UsageError(message, code="conflicting_flags")
    request.rules[POLICIES] = [*request.rules.get(POLICIES, ()), *policies]  # type: ignore[misc]
    request.origins[POLICIES] = f"for the feature `{name}`"


def apply(features: Mapping[str, Object], app: AppDef) -> None:
    """Stores the values of features with an application, with secrets masked."""
    stored = {f"{FEATURE}{name}": compact_json(mask(values)) for name, values in features.items()}
    app.metadata = {**app.metadata, **stored}
