"""Every RUNNER_* variable: its default, what it takes, and what it says when it is not that."""

from __future__ import annotations

import base64
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.profile import Network
from runner.settings import Settings, SettingsError

#: What tests and deployments rely on, as README.md lists it.
DEFAULTS = {
    "host": "127.0.0.1",
    "port": 8080,
    "data_root": "/var/lib/sandbox-runner",
    "session_uid": 200_000,
    "session_gid": 200_000,
    "nsjail": None,
    "token": None,
    "trusted_proxy": False,
    "sidecar_key": None,
    "network": Network.NONE,
    "run_timeout": 30.0,
    "compile_timeout": 10.0,
    "memory_limit": 512 << 20,
    "pids_limit": 64,
    "output_limit": 1 << 20,
    "checkpoint_max_bytes": 512 << 20,
    "lock_wait": 5.0,
    "max_jobs": 8,
    "file_server_url": None,
    "log_format": None,
}
GOOD = {
    "RUNNER_MEMORY_LIMIT": {"64MiB": 64 << 20, "1gib": 1 << 30, " 8 MiB ": 8 << 20},
    "RUNNER_OUTPUT_LIMIT": {"64MiB": 64 << 20, "4096": 4096, " 2 KiB ": 2048},
    "RUNNER_RUN_TIMEOUT": {"30s": 30.0, "250ms": 0.25, "2m": 120.0, "1.5h": 5400.0},
    "RUNNER_PORT": {"0": 0, "65535": 65535},
    "RUNNER_TRUSTED_PROXY": {"true": True, "false": False},
    "RUNNER_NETWORK": {"none": Network.NONE, "egress": Network.EGRESS},
    "RUNNER_DATA_ROOT": {"/x/y/": "/x/y"},
    "RUNNER_SIDECAR_KEY": {"A" * 43: bytes(32), "A" * 43 + "=": bytes(32)},
    "RUNNER_NSJAIL": {"/bin/sh": "/bin/sh"},
    "RUNNER_LOG_FORMAT": {"json": "json", "text": "text"},
}
BAD = {
    "RUNNER_MEMORY_LIMIT": ["", "0", "-1", "64MB", "64 M", "1.5GiB", "many", "0MiB", "8388607"],
    "RUNNER_RUN_TIMEOUT": ["", "30", "0s", "-1s", "30 seconds", "s"],
    "RUNNER_PORT": ["", "-1", "65536", "http", "8080.0"],
    "RUNNER_SESSION_UID": ["0", "-1", "root", "4294967295"],
    "RUNNER_PIDS_LIMIT": ["0", "many"],
    "RUNNER_TRUSTED_PROXY": ["", "yes", "1", "True"],
    "RUNNER_NETWORK": ["", "open", "NONE"],
    "RUNNER_DATA_ROOT": ["", "/", "relative", "/a/../b", "/a\0b"],
    "RUNNER_SIDECAR_KEY": ["", "A" * 42, "A" * 44, "!" * 43],
    "RUNNER_TOKEN": [""],
    "RUNNER_NSJAIL": ["", "nsjail", "/no/nsjail", "/usr/bin", "/etc/passwd"],
    "RUNNER_LOG_FORMAT": ["", "xml"],
}


def test_the_defaults_are_the_documented_ones() -> None:
    settings = Settings.from_environment({})
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", GOOD)
def test_what_is_taken(name: str) -> None:
    for text, value in GOOD[name].items():
        settings = Settings.from_environment({name: text})
        assert getattr(settings, name.removeprefix("RUNNER_").lower()) == value, text


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_by_name(name: str) -> None:
    for text in BAD[name]:
        with pytest.raises(SettingsError, match=f"^{name} takes ") as refused:
            Settings.from_environment({name: text})
        assert refused.value.__cause__ is None


def test_a_secret_is_in_no_message_and_no_repr() -> None:
    key = base64.urlsafe_b64encode(b"k" * 32).decode()
    settings = Settings.from_environment({"RUNNER_TOKEN": "t0ken", "RUNNER_SIDECAR_KEY": key})
    assert "t0ken" not in repr(settings) and "kkkk" not in repr(settings)
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment({"RUNNER_SIDECAR_KEY": "almost-a-key"})
    assert "almost" not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "0:0:0:0:0:0:0:1"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    assert Settings.from_environment({"RUNNER_HOST": host}).is_loopback


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "10.0.0.1", "runner.example", "1270.0.0.1"),
        # Names, which may lead anywhere.
        *("127.0.0.1.example", "127.example", "localhost.example", "127."),
    ],
)
def test_any_other_address_needs_a_token_or_a_trusted_proxy(host: str) -> None:
    with pytest.raises(SettingsError, match=r"RUNNER_TOKEN.*RUNNER_TRUSTED_PROXY"):
        Settings.from_environment({"RUNNER_HOST": host})
    for more in ({"RUNNER_TOKEN": "t"}, {"RUNNER_TRUSTED_PROXY": "true"}):
        Settings.from_environment({"RUNNER_HOST": host} | more)


def test_unknown_names_are_told_and_not_refused() -> None:
    environ = {"RUNNER_MEMROY_LIMIT": "1", "RUNNER_PORT": "1", "PATH": "/bin"}
    assert Settings.unknown_names(environ) == ["RUNNER_MEMROY_LIMIT"]
    Settings.from_environment(environ)


@settings(max_examples=60)
@given(st.sampled_from([each.name for each in fields(Settings)]), st.text(max_size=30))
def test_any_text_is_a_value_or_a_named_refusal(name: str, text: str) -> None:
    variable = f"RUNNER_{name.upper()}"
    try:
        Settings.from_environment({"RUNNER_TRUSTED_PROXY": "true"} | {variable: text})
    except SettingsError as refused:
        assert variable in str(refused) or "RUNNER_HOST" in str(refused)


def test_nothing_else_reads_the_environments_settings() -> None:
    root = Path(__file__).resolve().parents[2]
    readers = {
        str(path.relative_to(root))
        for path in (root / "runner").rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text("utf-8"))
    }
    assert readers == {"runner/__main__.py"}


def test_the_readme_names_every_setting() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    missing = [f"RUNNER_{each.name.upper()}" for each in fields(Settings)]
    assert [name for name in missing if f"`{name}`" not in readme] == []
