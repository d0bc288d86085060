"""Where a secret ends in a text, and what is not one: exactly the secret is masked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.masking import MASK, add_values, forget_values, mask, mask_arguments, mask_text
from torchx.masking import text as masking_text
from torchx.masking.names import LONGEST

QUOTED = [
    (r'API_KEY="a\"secret" N=1', 'API_KEY="*" N=1'),
    (r'API_KEY="a\\" N=1', 'API_KEY="*" N=1'),
    (r'API_KEY="a\\\"secret" N=1', 'API_KEY="*" N=1'),
    (r"API_KEY='a\' N=1", "API_KEY='*' N=1"),  # a shell knows no escapes within these
    ("API_KEY='a'\"b\"'c' N=1", "API_KEY='*' N=1"),
    ("API_KEY='a\nN=1", "API_KEY='*\nN=1"),
    ("API_KEY='a b", "API_KEY='*"),
    ("API_KEY=\"a b\nPASSWORD='c d\nN=1", "API_KEY=\"*\nPASSWORD='*\nN=1"),
    ("run 'API_KEY=a b' c", "run 'API_KEY=*' c"),
    ('export A="API_KEY=a b" c', 'export A="API_KEY=*" c'),
    (r'"{\"api_key\": \"a b\", \"n\": 1}" \ ', r'"{\"api_key\": \"*\", \"n\": 1}" \ '),
    (r"\"api_key\": \"a b\" \\"[:-1], r"\"api_key\": \"*\" \\"[:-1]),
    ("API_KEY='' b", "API_KEY='' b"),
    ('set "the TOKEN": then run', 'set "the TOKEN": then run'),
]
UNQUOTED = [
    ("API_KEY=a,b;c d", "API_KEY=* d"),
    ("API_KEY=a,N=1", "API_KEY=*,N=1"),
    ("API_KEY=a&n=1", "API_KEY=*&n=1"),
    ("API_KEY=a&b n=1", "API_KEY=* n=1"),
    ("API_KEY=a, b", "API_KEY=*, b"),
    ("API_KEY=a;", "API_KEY=*;"),
    ("API_KEY = a b", "API_KEY = * b"),
    ("http://h/?api_key=a#b", "http://h/?api_key=*"),
    ("API_KEY://a", "API_KEY://a"),
    ("API_KEY=", "API_KEY="),
    ("a.b-API_KEY=c", "a.b-API_KEY=*"),
    ("MY_TOKEN", "MY_TOKEN"),
]
COLONS = [
    ("api_key: a", "api_key: *"),
    ("  - api_key: a\n    n: 1", "  - api_key: *\n    n: 1"),
    ("n: 1\napi_key: a", "n: 1\napi_key: *"),
    ("n: API_KEY : a", "n: API_KEY : *"),
    ("n x-api-token: a", "n x-api-token: *"),
    ("n cookie: a b\nc", "n cookie: *\nc"),
    ("the api_key:a", "the api_key:*"),
    ("the api_key: a", "the api_key: a"),
    ("the api_key : a", "the api_key : a"),
]
HEADERS = [
    ("Authorization: Bearer a b\nn: 1", "Authorization: Bearer *\nn: 1"),
    ("Cookie: a=1; b=2\nn: 1", "Cookie: *\nn: 1"),
    ("Cookie: a=1; b", "Cookie: *"),
    ("curl -H 'Authorization: Basic abc' h", "curl -H 'Authorization: Basic *' h"),
    ('{"Authorization": "Token a", "n": 1}', '{"Authorization": "Token *", "n": 1}'),
    ("api_key: Bearer", "api_key: *"),
]
FLAGS = [
    ("--token x -n 1", "--token * -n 1"),
    ("--token -n 1", "--token -n 1"),
    ("--token '-a' b", "--token '*' b"),
    ("--token a,b;c d", "--token * d"),
    ("--token\tx b", "--token\t* b"),
    ("--token takes", "--token takes"),
    ("--token 'takes' b", "--token '*' b"),
    ("token a", "token a"),
    ("['--token', 'a', '-n']", "['--token', '*', '-n']"),
    ('["--token" , "a", "-n"]', '["--token" , "*", "-n"]'),
    (json.dumps(["--token", "a b"], indent=2), json.dumps(["--token", "*"], indent=2)),
    ("--token, 'a'", "--token, 'a'"),
]
FORMS = [
    ("https://0123456789abcde@h", "https://0123456789abcde@h"),
    ("https://0123456789abcdef@h", "https://*@h"),
    ("https://abcdefghijklmnopqr@h", "https://abcdefghijklmnopqr@h"),
    ("ftp://u:a@h", "ftp://u:*@h"),
    ("ftp://:a@h", "ftp://:*@h"),
    ("bearer abcdefg1 b", "bearer * b"),
    ("bearer abcdefgh b", "bearer abcdefgh b"),
    ("sk-" + "a" * 19 + "1", "*"),
    ("sk-" + "a" * 20, "sk-" + "a" * 20),
]
REFERENCES = [
    ("API_KEY=$A b", "API_KEY=$A b"),
    ("API_KEY=${A}b", "API_KEY=*"),
    ("API_KEY=$A" + "A" * (LONGEST - 2), "API_KEY=$A" + "A" * (LONGEST - 2)),
    ("API_KEY=$A" + "A" * (LONGEST - 1), "API_KEY=*"),
    ("x" * (LONGEST - 9) + "_password=a", "x" * (LONGEST - 9) + "_password=*"),
    ("x" * (LONGEST - 8) + "_password=a", "x" * (LONGEST - 8) + "_password=a"),
]


@pytest.mark.parametrize(
    ("text", "shown"), [*QUOTED, *UNQUOTED, *COLONS, *HEADERS, *FLAGS, *FORMS, *REFERENCES]
)
def test_exactly_the_secret_is_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown.replace("*", MASK)
    assert mask_text(f"n=1\n{text}") == "n=1\n" + shown.replace("*", MASK)


def test_known_secrets_are_masked_the_longest_first() -> None:
    add_values(["abc", "abcdef", ""])
    try:
        assert mask_text("xabcdefx abc ab") == f"x{MASK}x {MASK} ab"
    finally:
        forget_values()
    assert mask_text("abc") == "abc"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--token", "a", "b"], ["--token", "*", "b"]),
        (["--token", "", "b"], ["--token", "", "b"]),
        (["--token", "-b", "c"], ["--token", "-b", "c"]),
        (["--token=a", "b"], ["--token=*", "b"]),
        (["token", "a"], ["token", "a"]),
        (["API_KEY=a b"], ["API_KEY=*"]),
        (["API_KEY="], ["API_KEY="]),
        (["API_KEY=$A"], ["API_KEY=$A"]),
        (["API_KEY://a"], ["API_KEY://a"]),
        (["Authorization: Bearer a"], ["Authorization: Bearer *"]),
        (["api_key:a b"], ["api_key:* b"]),
        (["1API_KEY=a b"], ["1API_KEY=* b"]),
    ],
)
def test_arguments(arguments: list[str], shown: list[str]) -> None:
    expected = [argument.replace("*", MASK) for argument in shown]
    assert mask_arguments(arguments) == expected
    assert mask(["-x", *arguments]) == ["-x", *expected]


def test_data_keeps_its_form() -> None:
    data = {
        "api_key": 1234,
        "auth": True,
        "tokens": None,
        "password": "",
        "secrets": ["a", "b"],
        "credentials": [1, "a"],
        "name": "MY_TOKEN",
        "value": "a",
        "other": "b",
        "zone": "b",
        1: ("x", "API_KEY=a"),
        "ftp://u:a@h": {"cookies": ()},
        "args": ["-v", 3, {"cookie": "a"}, "--token", "a"],
        "torchx.pytorch.org/app": "{}",
    }
    assert mask(data) == {
        "api_key": MASK,
        "auth": True,
        "tokens": None,
        "password": "",
        "secrets": [MASK, MASK],
        "credentials": [1, "a"],
        "name": "MY_TOKEN",
        "value": MASK,
        "other": "b",
        "zone": "b",
        1: ("x", f"API_KEY={MASK}"),
        f"ftp://u:{MASK}@h": {"cookies": ()},
        "args": ["-v", 3, {"cookie": MASK}, "--token", MASK],
        "torchx.pytorch.org/app": MASK,
    }
    add_values(["b", "a"])
    shown = mask({"name": "n", "value": "a"})
    forget_values()
    assert shown == {"name": "n", "value": MASK}


@given(st.from_regex(masking_text._TOKENS))
def test_each_form_of_token_has_a_part_searched_first(token: str) -> None:
    assert any(part in token for part in masking_text._TOKEN_PARTS)


def test_letters_that_match_without_case_only_are_masked() -> None:
    assert mask_text("API_\u212aEY=a") == f"API_\u212aEY={MASK}"
    assert mask_text("API_KEY=a \u212a") == f"API_KEY={MASK} \u212a"
