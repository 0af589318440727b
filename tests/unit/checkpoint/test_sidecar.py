"""The sidecar's keys and paths. What a restore refuses of it is in the fault tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.checkpoint.limits import Limits
from runner.checkpoint.sidecar import KEY_BYTES, ArchiveFacts, derive_key, open_sealed, seal
from runner.errors import CheckpointUnauthentic, Internal
from tests.unit.checkpoint.kit import KEY, SESSION, facts, primed

ARCHIVE = ArchiveFacts(sha256="00" * 32, entries=1, bytes=1536)
LIMITS = Limits()


def sealed(key: bytes = KEY, **said: object) -> bytes:
    return seal(facts(**said), ARCHIVE, omitted=0, compressed_crc32=1, key=key, limits=LIMITS)


def test_a_session_has_a_key_of_its_own() -> None:
    keys = {derive_key(master, session) for master in (KEY, b"m" * 32) for session in ("a", "b")}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert derive_key(KEY, "a") == derive_key(KEY, "a")


def test_a_key_of_another_length_is_our_own_fault() -> None:
    with pytest.raises(Internal):
        sealed(key=b"short")


def test_every_byte_of_a_sidecar_is_under_the_seal() -> None:
    raw = sealed(primed={"in": primed()}, surfaced={"out": "cd" * 32})
    for at in range(len(raw)):
        with pytest.raises(CheckpointUnauthentic):
            open_sealed(
                raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], ARCHIVE, key=KEY, session=SESSION
            )


plain = st.binary(min_size=1, max_size=20).filter(
    lambda name: b"/" not in name and b"\x00" not in name and name not in (b".", b"..")
)
paths = st.lists(plain, min_size=1, max_size=4).map(lambda parts: os.fsdecode(b"/".join(parts)))


@given(st.dictionaries(paths, st.booleans().map(lambda flag: primed(read_only=flag)), max_size=5))
def test_every_path_comes_back(inputs: dict[str, object]) -> None:
    raw = sealed(primed=inputs)
    raw.decode("ascii")
    assert dict(open_sealed(raw, ARCHIVE, key=KEY, session=SESSION).primed) == inputs
