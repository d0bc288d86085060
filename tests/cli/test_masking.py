"""Secrets: what is masked by its name or by its form, what is not, and that it takes no time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.config import ConfigError, load_config
from torchx.masking import forget_values, looks_secret, mask, mask_arguments, mask_text, secrets_in_arguments
from torchx.specs.app import AppDef, Role
from torchx_cli import session
from torchx_cli.main import main
from torchx_cli.terminal import masking
from torchx_cli.terminal.masking import MASK
from torchx_cli.terminal.output import emit, note, print_stderr

CANARY = "canary-Zq8vT3xw"

SECRET = """
HF_TOKEN hf_token accessToken AUTHTOKEN API_TOKENS AUTH_TOKENS TOKEN ID_TOKEN CLIENT_SECRET SECRETS
awsSecretAccessKey AWS_SECRET_ACCESS_KEY PASSWORD PGPASSWORD db_password passwords NPM_PASSWD PASSPHRASE
SSH_PASSPHRASE PASSCODE MYSQL_PWD MYSQLPWD DB_PASS DBPASS SSHPASS KEYPASS PASS API_KEY OPENAI_APIKEY
api-key ACCESS_KEY ACCOUNTKEY PRIVATE_KEY LICENSE_KEY ENCRYPTION_KEY SSH_KEY SIGNING_KEYS CREDENTIAL
GOOGLE_APPLICATION_CREDENTIALS CREDS BOT_CRED PROXY_AUTH BASIC_AUTH AUTH AUTH_HEADER AUTHORIZATION
Proxy-Authorization GOOGLE_OAUTH SLACK_WEBHOOK WEBHOOK_URL SLACKWEBHOOK SENTRY_DSN DSN COOKIE
SESSION_COOKIE COOKIES AUTHCOOKIE PRIVATE DEPLOY_PRIVATE JWT SESSION_JWT BEARER GITHUB_PAT AZURE_SAS
CONNECTION_STRING X-Amz-Signature sig
"""

HARMLESS = """
TOKENIZERS_PARALLELISM MAX_TOKENS MAX_TOKEN NUM_TOKENS TOKENS TOKEN_COUNT TOKEN_LIMIT PAD_TOKEN
eos_token_id AUTHOR AUTHORS AUTHORITY AUTH_URL AUTH_METHOD OAUTH_URL KEYBOARD MONKEY KEY PRIMARY_KEY
PUBLIC_KEY SORT_KEY PWD OLDPWD CDPATH BYPASS COMPASS SINGLE_PASS PASSES SECRETARY PRIVATE_IP IS_PRIVATE
PRIVATE_SUBNET TokenError PASSWORD_MISSING PATH PATTERN SASQUATCH SIGNATURE SIGINT CONNECTIONS STRING WEB
HOOK HOST_NAME
"""


KEYS = (
    "api access account auth deploy deployment encrypt encryption hmac host kms license licence master "
    "private secret service shared sign signing ssh ssl storage tls wandb"
)
TOKENS = "access api auth bearer bot deploy hf id personal refresh secret session"
AUTHS = "basic bearer config cookie data header headers json key pass string token tokens value"
JOINED = "db ftp http key ldap mail my mysql pg redis root sasl smtp ssh store sudo user"
UNITS = (
    "batch bos budget cls count counts eos embedding ids input len length limit mask max min num number "
    "output pad padding per prompt sep size special stop text total unk vocab window"
)
OPEN = (
    "address addresses cidr cluster dns endpoint host hostname hosts image images ip ips link mode mount "
    "mounts network networks port ports registry repo repository subnet subnets tmp zone"
)
PASSES = "backward by double dry first forward fusion high last low multi one opt pre second single two"


def test_each_word_that_makes_a_secret_or_none() -> None:
    """Written out once more here, so that a word that is lost is noticed."""
    secret = [f"MY_{word}_KEY" for word in KEYS.split()] + [f"{word}_tokens" for word in TOKENS.split()]
    secret += [f"auth-{word}" for word in AUTHS.split()] + [f"{word}pass" for word in JOINED.split()]
    secret += [
        "passwrd",
        "webhooks",
        "ACCESSKEY",
        "PRIVATEKEY",
        "LICENSEKEY",
        "accountKey",
        "x_cred",
        "oauth2",
        "passwds",
        "token_id",
    ]
    harmless = [f"{word}_token" for word in UNITS.split()] + [f"TOKEN_{word}" for word in UNITS.split()]
    harmless += [f"private_{word}" for word in OPEN.split()] + [f"{word}_pass" for word in PASSES.split()]
    harmless += [
        f"password_{word}" for word in ["error", "exception", "failure", "invalid", "missing", "warning"]
    ]
    harmless += ["_", "", "x" * 200 + "_password" * 20, "pat", "sas", "PRIVATE_KEYBOARD_IP", "pass_through"]
    assert [name for name in secret if not looks_secret(name)] == []
    assert [name for name in harmless if looks_secret(name)] == ["PRIVATE_KEYBOARD_IP"]


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    masking.forget()
    yield
    masking.forget()


@pytest.mark.parametrize("name", SECRET.split())
def test_each_name_of_secret_is_masked_in_every_form(name: str) -> None:
    assert looks_secret(name)
    forms = [f"{name}={CANARY}", f"export {name}='{CANARY} {CANARY}'", f'{{"{name}": "{CANARY}", "N": 1}}']
    forms += [f"N:1;{name}:{CANARY};M:2", f"{name}: {CANARY}", f"  {name}: {CANARY}\n  N: 1"]
    forms += [f"run --{name} {CANARY} -n 1", f"run --{name}={CANARY}", f"['--{name}', '{CANARY}']"]
    forms += [f"https://host/path?{name}={CANARY}&n=1", f"docker run -e '{name}={CANARY} {CANARY}' image"]
    forms += [
        f'"{{\\"{name}\\": \\"{CANARY}\\"}}"',
        f"""{name}='{CANARY}'"'"'{CANARY}'""",
        f"{name}={CANARY},{CANARY}",
    ]
    assert {form: mask_text(form) for form in forms if "canary" in mask_text(form)} == {}
    data = {name: CANARY, "env": [{"name": name, "value": CANARY}], "args": [f"--{name}", CANARY]}
    data["more"] = [f"{name}={CANARY} {CANARY}", {name: [CANARY, CANARY]}]
    assert "canary" not in json.dumps(mask(data))


@pytest.mark.parametrize("name", HARMLESS.split())
def test_names_that_only_look_alike_are_not_masked(name: str) -> None:
    assert not looks_secret(name)
    for form in (f"{name}={CANARY}", f"--{name} {CANARY}", f'{{"{name}": "{CANARY}"}}', f"{name}: {CANARY}"):
        assert mask_text(form) == form
    assert mask({name: CANARY, "args": [f"--{name}", CANARY]}) == {
        name: CANARY,
        "args": [f"--{name}", CANARY],
    }


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: Bearer canary9Zq8vT3xw'",
        "Authorization: Basic Y2FuYXJ5OmNhbmFyeQ canary",
        "curl -H 'Cookie: a=canary; b=canary'",
        "X-Api-Key: canary\nHost: x".partition("\n")[0],
        "header Bearer canary9Zq8vT3xw here",
        "postgres://user:canary@db/x",
        "redis://:canary@host:6379/0",
        "https://user:p@canary@host",
        "git+https://canary0123456789abcdef@github.com/a/b",
        "amqp://a:canary@h, amqp://b:canary@h",
        "ghp_canary0123456789abcdef0123456789abcd",
        "github_pat_canary0123456789_abcdef",
        "hf_canaryABCDEFGHIJKLMNOPQRSTUVWX",
        "sk-proj-canary0123456789abcdef",
        "sk_live_canary0123456789",
        "xoxb-canary-123456789",
        "glpat-canary0123456789",
        "npm_canary0123456789012345678901234567",
        "pypi-canary01234567890123456789012345",
        "dckr_pat_canary0123456789",
        "nvapi-canary0123456789abcdef",
        "eyJcanary0123.eyJcanary0123.canary",
        "-----BEGIN RSA PRIVATE KEY-----\ncanary\ncanary\n-----END RSA PRIVATE KEY-----",
        "HF_TOKEN='canary without an end",
        "DB_PASSWORD=canary)canary",
    ],
)
def test_what_is_a_secret_by_its_form_is_masked(text: str) -> None:
    assert "canary" not in mask_text(f"before {text} after" if "\n" not in text else text).lower()
    assert MASK in mask_text(text)


def test_a_token_after_its_scheme_is_masked() -> None:
    for name in ("-HX-Auth: ", "auth=", "auth: "):
        assert mask_text(f"{name}Bearer canary N=1") == f"{name}Bearer {MASK} N=1"


@pytest.mark.parametrize(
    "key", ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "AIzaSyA0123456789012345678901234567890"]
)
def test_keys_of_clouds_are_masked(key: str) -> None:
    assert mask_text(f"key {key}.") == f"key {MASK}."


@pytest.mark.parametrize(
    "text",
    [
        "--password takes a value",
        "--token is given twice; it takes one value",
        "unknown flag `--pasword`: did you mean `--password`?",
        "the token: where it comes from",
        "ssh://git@github.com/a/b",
        "http://host:8080/path and me@example.org",
        "Bearer authentication is off",
        "sk-learn-is-a-name-without-digits",
        "HF_TOKEN=$HF_TOKEN --token ${TOKEN} --api-key $(cat key)",
        f"HF_TOKEN={MASK} --token {MASK}",
        "--auth --verbose",
        "token://host",
        "HF_TOKEN= N=1",
        "monkey: business=1",
    ],
)
def test_sentences_and_references_stay(text: str) -> None:
    assert mask_text(text) == text


def test_the_arguments_of_a_program() -> None:
    words = [
        "run",
        "--password",
        "a b c d e",
        "-t",
        "--key-pass=c d e f g",
        "PGPASSWORD=e f g h i",
        "--token",
        "$TOKEN",
        "--auth",
    ]
    shown = ["run", "--password", MASK, "-t", f"--key-pass={MASK}", f"PGPASSWORD={MASK}", "--token", "$TOKEN"]
    assert mask_arguments(words) == [*shown, "--auth"]
    assert secrets_in_arguments(words) == ["a b c d e", "c d e f g", "e f g h i"]
    assert (
        masking.command_line(["torchx", "run", "--", "--password", "x"])
        == f"torchx run -- --password '{MASK}'"
    )


LONG = 1 << 17


@pytest.mark.parametrize(
    "piece",
    [
        "x", "token", "TOKEN=", "TOKEN='", 'TOKEN="', "token-", "token.", "--token ", "Bearer ", "a://", "a://b:",
        "a://b@", "sk-", "eyJ", "eyJaaaaaaaa-", "eyJaaaaaaaaa.", "TOKEN:a,", "-----BEGIN PRIVATE KEY-----",
        '\\"', "TOKEN\\\\\\'", "TOKEN= ", "Cookie: ", "ghp_-", "é", "password ", "'TOKEN", "TOKEN=a;b ",
        "_.-",
    ],
)  # fmt: skip
def test_masking_is_linear(piece: str) -> None:
    text = piece * (LONG // len(piece))
    began = time.process_time()
    mask_text(text)
    assert time.process_time() - began < 4  # a quarter of a second; with a quadratic pattern, minutes


def test_secrets_of_application_are_masked_in_all_later_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = AppDef(
        "a",
        [Role("r", "", entrypoint="x", args=["--password", "p4ssw0rd-arg"], env={"DB_PASS": "p4ssw0rd-env"})],
    )
    masking.remember(app.roles)
    note("the engine said: p4ssw0rd-env")
    print_stderr("and p4ssw0rd-arg")
    emit({"msg": "p4ssw0rd-env"}, "json", hide=True)
    captured = capsys.readouterr()
    assert captured.err == f"the engine said: {MASK}\nand {MASK}\n"
    assert json.loads(captured.out) == {"msg": MASK}


COMPONENT = """
import torchx.specs as specs


def app() -> specs.AppDef:
    args = ["-c", "exit 0", "--password", "canary-in-args"]
    role = specs.Role("r", "", entrypoint="sh", args=args, env={"ACME_PIN": "canary-in-env"})
    return specs.AppDef("app", [role], metadata={"webhook": "canary-in-metadata"})


def broken() -> specs.AppDef:
    raise ValueError("postgres://me:canary@host PGPASSWORD=canary")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(COMPONENT)
    (tmp_path / ".torchxconfig").write_text("[torchx]\nmask = ACME_*, *_SALT\n")
    return tmp_path


def test_the_configuration_adds_names(project: Path) -> None:
    assert masking.looks_secret("ACME_PIN")
    assert masking.looks_secret("db-salt")
    assert masking.mask_text("a ACME_X=canary --my-salt canary") == f"a ACME_X={MASK} --my-salt {MASK}"
    assert not masking.looks_secret("PIN_MEMORY")
    masking.forget()
    (project / ".torchxconfig").write_text("[torchx]\nmask = ACME_*\n[nonsense\n")
    assert not masking.looks_secret("ACME_PIN")  # the commands that read the file report the mistake


def test_a_wrong_key_of_the_section_is_an_error(project: Path) -> None:
    (project / ".torchxconfig").write_text("[torchx]\nmaks = A\n")
    with pytest.raises(ConfigError, match="unknown key `maks`") as raised:
        load_config()
    assert "did you mean `mask`" in str(raised.value.hint)


def test_no_command_shows_a_secret(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHX_EVENTS", "console")
    monkeypatch.setenv("TORCHX_CONTEXT_NAME", "")  # a run sets it
    for words in (
        ("run", "-s", "local_cwd", "--dryrun", "c.py:app"),
        ("run", "-s", "local_cwd", "--dryrun", "-o", "json", "c.py:app"),
        ("run", "-s", "local_cwd", "--dryrun", "-o", "yaml", "c.py:app"),
        ("run", "-s", "local_cwd", "c.py:app"),
        ("describe", "@last"),
        ("describe", "@last", "-o", "json"),
        ("describe", "@last", "-o", "yaml"),
        ("status", "@last"),
        ("--debug", "run", "-s", "local_cwd", "c.py:broken"),
    ):
        assert main(words) == (2 if "--debug" in words else 0)
    captured = capfd.readouterr()
    shown = captured.out + captured.err
    assert "canary" not in shown
    assert "Traceback" in shown
    assert f"ACME_PIN={MASK}" in shown


def test_quoted_log_lines_are_masked_the_log_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"declared-{CANARY}")
    secrets = ("--secret", "API=@token", "--env", f"DB_PASSWORD=named-{CANARY}", "--env", "N=12")
    script = "echo $API and $DB_PASSWORD, $N; exit 3"
    assert main(["run", "-s", "local_cwd", *secrets, "utils.sh", script]) == 3
    handle = capfd.readouterr().out.strip()
    for words in (
        ["status", handle],
        ["describe", handle],
        ["top", handle],
        ["top", handle, "-o", "json"],
        ["report", handle, "-o", "-"],
        ["wait", handle, "--for", "log:and"],
    ):
        forget_values()
        main(words)
        shown = capfd.readouterr()
        assert CANARY not in shown.out + shown.err, words
        assert f"{MASK} and {MASK}, 12" in shown.out, words
    for words in (["log", handle], ["log", "--fold", handle]):
        assert main(words) == 0
        assert f"declared-{CANARY} and named-{CANARY}, 12\n" in capfd.readouterr().out


def test_each_line_of_a_secret_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pem").write_text(f"-----BEGIN PRIVATE KEY-----\n{CANARY}-one\n  {CANARY}-two\nend\n")
    script = 'echo "$PEM" | sed -n 2,3p; echo end; exit 3'
    assert main(["run", "-s", "local_cwd", "--secret", "PEM=@pem", "utils.sh", script]) == 3
    handle = capfd.readouterr().out.strip()
    for words in (
        ["why", handle],
        ["why", handle, "-o", "json"],
        ["status", handle],
        ["report", handle, "-o", "-"],
    ):
        forget_values()
        main(words)
        shown = capfd.readouterr()
        assert CANARY not in shown.out + shown.err, words
        assert MASK in shown.out and "end" in shown.out, words


HEADER = """
import torchx.specs as specs

def app(token: str = "", header: str = "") -> specs.AppDef:
    role = specs.Role("sh", "", entrypoint="true", args=[f"X-Custom {token}", header])
    return specs.AppDef("app", [role])
"""


@pytest.mark.parametrize(
    "words",
    [
        ["c.py:app", "--token", f"{CANARY}-1"],
        ["c.py:app", "--header", f"X-Custom {CANARY}-1"],
        ["--secret", "OTHER", "c.py:app", "--header", f"X-Custom {CANARY}-2"],
    ],
)
def test_a_secret_within_an_argument_is_masked(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is an argument of the component, a secret variable of the shell, or one of `--secret`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(HEADER)
    monkeypatch.setenv("HF_TOKEN", f"{CANARY}-1")
    monkeypatch.setenv("OTHER", f"{CANARY}-2")
    for form in ("text", "json"):
        forget_values()
        assert main(["run", "-s", "local_cwd", "--dryrun", "-o", form, *words]) == 0
        assert f"X-Custom {MASK}" in (dryrun := capfd.readouterr().out)
        assert CANARY not in dryrun
    assert main(["run", "-s", "local_cwd", *words]) == 0
    handle = capfd.readouterr().out.strip()
    for command in ("describe", "status", "why"):
        for form in ("text", "json"):
            forget_values()
            main([command, handle, "-o", form])
            shown = capfd.readouterr()
            assert CANARY not in shown.out + shown.err, command


def test_secret_parameter_of_sweep_is_masked_in_its_runs(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--each", f"token={CANARY}-1,{CANARY}-2", "utils.sh", "echo got {token}; exit 3"]
    assert main(["run", "-s", "local_cwd", *words]) == 3
    handle = capfd.readouterr().out.strip()
    for target in (handle, f"{handle}/2"):
        for command in ("describe", "status", "why", "top"):
            forget_values()
            main([command, target, "-o", "json"])
            main([command, target])
            shown = capfd.readouterr()
            assert CANARY not in shown.out + shown.err, command
    main(["describe", f"{handle}/2"])
    assert f"'echo got {MASK}; exit 3'" in capfd.readouterr().out


def test_log_messages_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        session.Session(log_level="INFO")
        logging.getLogger("torchx.test").info("PGPASSWORD=canary \x1b]0;title\x07")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert capsys.readouterr().err.endswith(f"PGPASSWORD={MASK} \\x1b]0;title\\x07\n")
