"""The archive of a push: what usual writers make is taken, everything else is a 4xx."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner.errors import BadRequest, BodyTooLarge, RunnerError
from runner.inputs.push import unpack
from tests.pushing import Item, archive, batch, expanded, members

ONE = Item("s", "one", b"first")
TWO = Item("s", "two", os.urandom(70_000), read_only=True)
ROOT = (b"push",)


def take(shelf, body: bytes, *, declared: int | None = None, cut: int = 65536, cap: int = 1 << 20):
    shelf.staging.remove(ROOT)
    shelf.staging.make_dir(ROOT, uid=0, gid=0, mode=0o700).close()
    chunks = [body[start : start + cut] for start in range(0, len(body), cut)]
    return unpack(
        chunks, shelf.staging, ROOT, declared=declared, max_bytes=cap, make_room=lambda _: 0
    )


def bodies(shelf, arrivals) -> dict[str, tuple[bytes, bool]]:
    staging = shelf.root / "staging"
    return {
        each.key: ((staging / b"/".join(each.parts).decode()).read_bytes(), each.read_only)
        for each in arrivals
    }


EXPECTED = {ONE.key: (b"first", False), TWO.key: (TWO.body, True)}


@pytest.mark.parametrize("cut", [1, 511, 65536])
def test_pairs_arrive_however_the_body_is_cut(shelf, cut: int) -> None:
    found = take(shelf, batch(ONE, TWO), declared=expanded((ONE, TWO)), cut=cut)
    assert bodies(shelf, found) == EXPECTED


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_a_usual_writer_is_taken(shelf, form: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as tar:
        for name, body in members((ONE, TWO)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    assert bodies(shelf, take(shelf, out.getvalue())) == EXPECTED


def test_gnu_tar_and_node_are_taken(shelf, tmp_path: Path) -> None:
    pairs = members((ONE, TWO))
    for name, body in pairs:
        (tmp_path / name).write_bytes(body)
    names = [name for name, _ in pairs]
    made = subprocess.run(
        ["tar", "-czf", "-", *names], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    assert bodies(shelf, take(shelf, made)) == EXPECTED
    # The header that zlib of node writes: no time, its own system.
    plain = gzip.decompress(made)
    squeezed = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = squeezed.compress(plain) + squeezed.flush()
    trailer = zlib.crc32(plain).to_bytes(4, "little") + len(plain).to_bytes(4, "little")
    for system in (b"\x03", b"\x13", b"\x0a", b"\xff"):
        member = b"\x1f\x8b\x08\0\0\0\0\0\0" + system + deflated + trailer
        assert bodies(shelf, take(shelf, member, cut=7)) == EXPECTED


def test_pairs_may_come_in_any_order(shelf) -> None:
    assert bodies(shelf, take(shelf, archive(reversed(members((ONE, TWO)))))) == EXPECTED


def with_member(**changes: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(ONE.key)
        for name, value in changes.items():
            setattr(info, name, value)
        tar.addfile(info, io.BytesIO(b""))
        for name, body in members((ONE,)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


GOOD = batch(ONE)
K = ONE.key
MALFORMED = {
    "empty": b"",
    "not gzip": b"PK\x03\x04" * 10,
    "not tar": gzip.compress(b"x" * 2048),
    "truncated": GOOD[:-20],
    "no end": gzip.compress(gzip.decompress(GOOD)[:512]),
    "flipped": GOOD[:40] + bytes([GOOD[40] ^ 1]) + GOOD[41:],
    "second member": GOOD + GOOD,
    "trailing": GOOD + b"x",
    "behind the end": gzip.compress(gzip.decompress(GOOD) + b"x" * 512),
    "zeros without end": gzip.compress(gzip.decompress(GOOD) + bytes(1 << 20)),
    "no json": archive([(K, b"x")]),
    "no body": archive([(f"{K}.json", b"{}")]),
    "body twice": archive([(K, b"x"), (K, b"x"), (f"{K}.json", b"{}")]),
    "json twice": archive([(K, b"x"), (f"{K}.json", b"{}"), (f"{K}.json", b"{}")]),
    "json is no json": archive([(K, b"x"), (f"{K}.json", b"{")]),
    "json is a list": archive([(K, b"x"), (f"{K}.json", b"[]")]),
    "json of another type": archive([(K, b"x"), (f"{K}.json", b'{"readOnly":"yes"}')]),
    "json too long": archive([(K, b"x"), (f"{K}.json", b'{"a":"' + b"x" * 5000 + b'"}')]),
    "another name": archive([("../evil", b"x"), ("../evil.json", b"{}")]),
    "below a directory": archive([(f"./{K}", b"x"), (f"./{K}.json", b"{}")]),
    "upper case": archive([(K.upper(), b"x"), (f"{K.upper()}.json", b"{}")]),
    "a newline": archive([(f"{K}\n", b"x"), (f"{K}.json", b"{}")]),
    "symlink": with_member(type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": with_member(type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "directory": with_member(type=tarfile.DIRTYPE),
    "device": with_member(type=tarfile.CHRTYPE),
    "fifo": with_member(type=tarfile.FIFOTYPE),
    "sparse": with_member(type=tarfile.GNUTYPE_SPARSE),
    "pax path": with_member(pax_headers={"path": "x" * 64}),
    "pax size": with_member(pax_headers={"size": "5"}),
    "pax sparse": with_member(pax_headers={"GNU.sparse.major": "1"}),
    "too many": archive(members(Item("s", str(n), b"") for n in range(257))),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_anything_else_is_a_bad_request(shelf, name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        take(shelf, MALFORMED[name])
    assert refused.value.reason == "archive" and refused.value.status == 400


@pytest.mark.parametrize("declared", [0, expanded((ONE,)) - 1, expanded((ONE,)) + 1])
def test_the_declared_bytes_have_to_be_right(shelf, declared: int) -> None:
    with pytest.raises(BadRequest):
        take(shelf, GOOD, declared=declared)


def test_more_than_the_cache_takes_is_too_large(shelf) -> None:
    bomb = archive([(K, bytes(2 << 20)), (f"{K}.json", b"{}")])
    for body, declared in ((bomb, None), (GOOD, 2 << 20), (batch(TWO), None)):
        with pytest.raises(BodyTooLarge):
            take(shelf, body, declared=declared, cap=60_000)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=1500))
@example(b"")
def test_no_tar_bytes_raise_anything_else(shelf, plain: bytes) -> None:
    try:
        take(shelf, gzip.compress(plain))
    except RunnerError as error:
        assert 400 <= error.status < 500


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2559), st.integers(0, 255))
def test_no_changed_byte_of_a_tar_raises_anything_else(shelf, at: int, value: int) -> None:
    plain = bytearray(gzip.decompress(GOOD))
    plain[at] = value
    try:
        found = take(shelf, gzip.compress(bytes(plain)))
    except RunnerError as error:
        assert 400 <= error.status < 500
    else:
        assert [each.key for each in found] == [K]
