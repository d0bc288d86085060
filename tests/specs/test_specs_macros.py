"""Macros: where they are replaced, and where not."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.specs import BindMount, Role, macros

VALUES = macros.Values(img_root="/img", app_id="job-1", replica_id="3", rank0_env="RANK0")
ALL = f"{macros.img_root} {macros.app_id} {macros.replica_id} {macros.rank0_env}"


def test_a_role_s_arguments_environment_and_metadata_are_replaced() -> None:
    role = Role(
        "r-${app_id}",
        "img-${app_id}",
        entrypoint="${app_id}",
        args=[ALL, "$$${rank0_env} $${${rank0_env}:=localhost}"],
        env={"${app_id}": "${app_id}"},
        metadata={"${app_id}": {"deep": ["${app_id}", 3, None, ("${replica_id}",)]}},
        mounts=[BindMount("${app_id}", "/b")],
    )
    before = copy.deepcopy(role)
    done = VALUES.apply(role)
    assert role == before
    assert done.args == ["/img job-1 3 RANK0", "$RANK0 ${RANK0:=localhost}"]
    assert done.env == {"${app_id}": "job-1"}
    assert done.metadata == {"${app_id}": {"deep": ["job-1", 3, None, ("3",)]}}
    assert (done.name, done.image, done.entrypoint) == ("r-${app_id}", "img-${app_id}", "${app_id}")
    assert done.mounts == [BindMount("${app_id}", "/b")]


def test_other_words_and_lone_signs_stay() -> None:
    assert VALUES.substitute("${nope} $1 $ ${ $$ ${base_img_root}") == "${nope} $1 $ ${ $ ${base_img_root}"
    assert macros.Values("a", "b", "c", "d", "e").to_dict() == {
        "img_root": "a",
        "app_id": "b",
        "replica_id": "c",
        "rank0_env": "d",
    }


@settings(max_examples=60)
@given(st.text("ab${}_x "))
def test_doubled_signs_come_out_as_they_were(text: str) -> None:
    assert VALUES.substitute(text.replace("$", "$$")) == text


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["x", "$$", "${app_id}", "${nope}", " "])), st.text("ab$", max_size=4))
def test_each_macro_is_replaced_once(parts: list[str], value: str) -> None:
    values = macros.Values("", value, "", "")
    expected = {"$$": "$", "${app_id}": value}
    assert values.substitute("".join(parts)) == "".join(expected.get(p, p) for p in parts)


def test_hosts_are_replaced_for_names_of_any_form() -> None:
    values = macros.Values("", "job-1", "0", "", role_hosts={"web-ui": "a,b", "${app_id}": "c"})
    text = f"{macros.hosts('web-ui')}:80 $${{hosts.web-ui}} {macros.hosts('none')} ${{hosts.}} ${{a.b}}"
    assert values.substitute(text) == "a,b:80 ${hosts.web-ui} ${hosts.none} ${hosts.} ${a.b}"
