"""Run options written as a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional  # noqa: UP035 (plugins of older Pythons spell types so)

import pytest

from torchx.specs import CfgVal, InvalidRunConfigException, runopt
from torchx.specs.structured_opts import StructuredOpts


@dataclass
class Cluster(StructuredOpts):
    context: str | None = None
    """Which cluster."""

    namespace: str = "default"
    """Which part of it."""


@dataclass
class Opts(StructuredOpts):
    """Options of a cluster."""

    cluster_name: str
    """Where to run,
    and nowhere else."""

    num_retries: int = 3
    tags: list[str] = field(default_factory=list)
    """Words."""
    labels: Optional[Dict[str, str]] = None  # noqa: UP006, UP045
    hosts: Optional[List[str]] = None  # noqa: UP006, UP045
    mail_user: str | None = field(default=None, metadata={"cfg_key": "mail-user"})
    """Recipients of mail."""
    rate: float = 1.0
    quiet: bool = False
    k8s: Cluster = field(default_factory=Cluster)


@dataclass
class More(Opts):
    extra: str = "e"
    """One more."""


def test_each_field_is_an_option_with_its_help() -> None:
    assert dict(Opts.as_runopts()) == {
        "cluster_name": runopt(None, str, True, "Where to run,\nand nowhere else."),
        "num_retries": runopt(3, int, False, "num_retries"),
        "tags": runopt([], list[str], False, "Words."),
        "labels": runopt(None, Dict[str, str], False, "labels"),  # noqa: UP006
        "hosts": runopt(None, List[str], False, "hosts"),  # noqa: UP006
        "mail-user": runopt(None, str, False, "Recipients of mail."),
        "rate": runopt(1.0, float, False, "rate"),
        "quiet": runopt(False, bool, False, "quiet"),
        "k8s.context": runopt(None, str, False, "Which cluster."),
        "k8s.namespace": runopt("default", str, False, "Which part of it."),
    }


def test_help_is_inherited() -> None:
    opts = More.as_runopts()
    assert [opts.get(key).help for key in ("mail-user", "extra")] == ["Recipients of mail.", "One more."]  # type: ignore[union-attr]


def test_an_object_from_options_under_any_of_their_names() -> None:
    given: dict[str, CfgVal] = {
        "clusterName": "x",
        "k8s.context": "c",
        "mail-user": "me",
        "numRetries": 5,
        "unknown": 1,
    }
    opts = Opts.from_cfg(given)
    assert opts == Opts("x", num_retries=5, mail_user="me", k8s=Cluster("c"))
    assert Opts.from_cfg({"cluster_name": "x", "mail_user": "me"}).mail_user == "me"
    assert given["k8s.context"] == "c"


def test_options_that_were_resolved_make_an_object() -> None:
    resolved = Opts.as_runopts().resolve({"cluster_name": "x"})
    assert Opts.from_cfg(resolved) == Opts("x")


def test_none_is_a_default_where_it_is_no_value() -> None:
    opts = Opts.from_cfg({"cluster_name": "x", "num_retries": None, "labels": None})
    assert (opts.num_retries, opts.labels) == (3, None)


@pytest.mark.parametrize("cfg", [{}, {"cluster_name": None}])
def test_a_required_option_that_is_missing(cfg: dict[str, None]) -> None:
    with pytest.raises(InvalidRunConfigException, match="`cluster_name` is required"):
        Opts.from_cfg(cfg)


def test_a_value_is_the_object_s_own() -> None:
    tags = ["a"]
    opts = Opts.from_cfg({"cluster_name": "x", "tags": tags})
    opts.tags.append("b")
    assert tags == ["a"]
    Opts.from_cfg({"cluster_name": "x"}).tags.append("b")
    assert Opts.from_cfg({"cluster_name": "x"}).tags == []


def test_it_reads_like_a_mapping() -> None:
    opts = Opts("x", mail_user="me", k8s=Cluster("c"))
    assert list(opts) == [key for key, _ in Opts.as_runopts()]
    assert dict(opts) == Opts.as_runopts().resolve(opts)
    assert (opts["mail-user"], opts["mail_user"], opts["clusterName"], opts["k8s.context"]) == (
        "me",
        "me",
        "x",
        "c",
    )
    assert opts["k8s"] == Cluster("c")
    assert ("rate" in opts, "nope" in opts, opts.get("nope", 4), len(opts)) == (True, False, 4, 10)
    with pytest.raises(KeyError):
        opts["k8s.nope"]


def test_classes_inside_functions() -> None:
    @dataclass
    class Inner(StructuredOpts):
        x: int = 1
        """An x."""

    @dataclass
    class Outer(StructuredOpts):
        inner: Inner = field(default_factory=Inner)
        y: str = "y"

    assert dict(Outer.as_runopts()) == {
        "inner.x": runopt(1, int, False, "An x."),
        "y": runopt("y", str, False, "y"),
    }
    assert Outer.from_cfg({"inner.x": 2}) == Outer(Inner(2))


def test_a_class_without_source_has_no_help() -> None:
    names: dict[str, type[StructuredOpts]] = {}
    code = "@dataclass\nclass Typed(StructuredOpts):\n    x: int = 1\n    'An x.'\n"
    exec(code, {"dataclass": dataclass, "StructuredOpts": StructuredOpts, "__name__": __name__}, names)
    assert dict(names["Typed"].as_runopts()) == {"x": runopt(1, int, False, "x")}


def test_a_type_that_no_option_can_have() -> None:
    @dataclass
    class Wrong(StructuredOpts):
        x: set[str] = field(default_factory=set)

    with pytest.raises(TypeError, match=r"Wrong.x is set\[str\]; a run option is"):
        Wrong.as_runopts()


class Undecorated(StructuredOpts):
    cluster_name: str
    """Name of the cluster."""

    mail_user: str | None = field(default=None, metadata={"cfg_key": "mail-user"})


class Derived(Undecorated):
    tries: int = 3


@dataclass
class DecoratedChild(Undecorated):
    tries: int = 3


def test_a_class_without_the_decorator_is_a_dataclass() -> None:
    assert Undecorated("x").cluster_name == "x"  # type: ignore[call-arg]
    assert Undecorated.from_cfg({"clusterName": "y"}) == Undecorated(cluster_name="y")  # type: ignore[call-arg]
    for kind in (Derived, DecoratedChild):
        assert [key for key, _ in kind.as_runopts()] == ["cluster_name", "mail-user", "tries"]
    assert Derived.get_docstrings() == {"cluster_name": "Name of the cluster."}
    assert repr(Derived("x", tries=4)) == "Derived(cluster_name='x', mail_user=None, tries=4)"  # type: ignore[call-arg]


def test_options_and_a_mapping_are_joined() -> None:
    opts = Undecorated.from_cfg({"cluster_name": "x", "image_repo": "r"})
    assert opts | {"clusterName": "y", "more": 1} == {
        "cluster_name": "y",
        "mail-user": None,
        "image_repo": "r",
        "more": 1,
    }
    assert opts | Undecorated(cluster_name="z") == {"cluster_name": "z", "mail-user": None, "image_repo": "r"}  # type: ignore[call-arg]


def test_names_that_are_not_fields_are_in_the_mapping() -> None:
    opts = Undecorated.from_cfg({"cluster_name": "x", "image_repo": "r"})
    assert dict(opts) == {"cluster_name": "x", "mail-user": None, "image_repo": "r"}
    assert "image_repo" not in repr(opts)
    with pytest.raises(KeyError):
        opts["other"]


@dataclass
class _Inner(StructuredOpts):
    context: str = "c"
    """Which cluster."""


@dataclass
class _WithOptionalGroup(StructuredOpts):
    inner: _Inner | None = None


def test_an_optional_group_without_options_is_none() -> None:
    assert _WithOptionalGroup.from_cfg({}).inner is None
    assert dict(_WithOptionalGroup.from_cfg({"inner.context": "d"})) == {"inner.context": "d"}


@pytest.mark.parametrize("name", ["inner.context", "inner.other", "plain.context", "other"])
def test_a_name_of_no_value_is_not_contained(name: str) -> None:
    @dataclass
    class Both(_WithOptionalGroup):
        plain: str = "p"

    assert name not in Both()
    assert Both().get(name, "default") == "default"


def test_groups_have_their_own_help() -> None:
    assert _WithOptionalGroup.get_docstrings() == {"inner.context": "Which cluster."}
