"""Packages that a program installs for itself, and inputs of a size that is not small."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTHON = "/usr/bin/python3"
EXTENSION = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *unused) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = { { "answer", answer, METH_NOARGS, NULL }, { NULL } };
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "native_answer", NULL, -1, methods };
PyMODINIT_FUNC PyInit_native_answer(void) { return PyModule_Create(&module); }
"""
ASK = """
import json, sys, sysconfig
print(json.dumps([sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'),
                  'cp%d%d' % sys.version_info[:2], sysconfig.get_platform().replace('-', '_')]))
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: false\nTag: {tag}\n"
METADATA = "Metadata-Version: 2.1\nName: native-answer\nVersion: 1.0\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """Name and bytes of a wheel with a compiled module for the jail's Python (PEP 427)."""
    directory = tmp_path_factory.mktemp("wheel")
    asked = subprocess.run([PYTHON, "-c", ASK], capture_output=True, check=True)
    include, suffix, python, platform = json.loads(asked.stdout)
    source, built = directory / "native_answer.c", directory / f"native_answer{suffix}"
    source.write_text(EXTENSION)
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{include}", "-o", str(built), str(source)]
    subprocess.run(command, check=True)
    tag = f"{python}-{python}-{platform}"
    return f"native_answer-1.0-{tag}.whl", _zipped(built, tag)


def _zipped(built: Path, tag: str) -> bytes:
    info = "native_answer-1.0.dist-info"
    members = {
        built.name: built.read_bytes(),
        f"{info}/METADATA": METADATA.encode(),
        f"{info}/WHEEL": WHEEL.format(tag=tag).encode(),
    }
    record = ""
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(content)}\n"
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


async def test_a_native_extension_installed_in_one_turn_is_imported_in_the_next(
    runner: Daemon, wheel: tuple[str, bytes]
) -> None:
    name, content = wheel
    install = f"python3 -m pip install --no-index --quiet --target packages ./{name} && ls packages"
    reply = await runner.execute(
        install,
        language="bash",
        session=SESSION,
        files=[{"name": name, "content": base64.b64encode(content).decode(), "encoding": "base64"}],
    )
    run = reply.json["run"]
    assert (run["outcome"]["kind"], run["code"]) == ("exited", 0), run
    code = (
        "import sys; sys.path.insert(0, 'packages'); import native_answer as n; print(n.answer())"
    )
    run = (await runner.execute(code, session=SESSION)).json["run"]
    assert run["stdout"] == "42\n", run
    # And in whatever VM the session goes on.
    archive = (await runner.checkpoint(SESSION)).body
    assert (await runner.restore(SESSION, archive)).status == 200
    run = (await runner.execute(code, session=SESSION)).json["run"]
    assert run["stdout"] == "42\n", run


async def test_a_virtual_environment_of_its_own_works(runner: Daemon) -> None:
    code = (
        "python3 -m venv --without-pip env && ./env/bin/python -c 'import sys; print(sys.prefix)'"
    )
    run = (await runner.execute(code, language="bash", session=SESSION)).json["run"]
    assert run["stdout"] == "/mnt/data/env\n", run


async def test_eight_megabytes_of_standard_input_arrive(runner: Daemon) -> None:
    stdin = "0123456789abcde\n" * (8 << 16)
    code = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    run = (await runner.execute(code, session=SESSION, stdin=stdin)).json["run"]
    assert run["stdout"].strip() == hashlib.sha256(stdin.encode()).hexdigest()


async def test_standard_input_that_nobody_reads_holds_up_nothing(runner: Daemon) -> None:
    run = (await runner.execute("print(1)", session=SESSION, stdin="x" * (4 << 20))).json["run"]
    assert (run["stdout"], run["outcome"]["kind"], run["code"]) == ("1\n", "exited", 0)


_LOOKED = subprocess.run([PYTHON, "-c", "import matplotlib"], check=False, capture_output=True)
HAS_MATPLOTLIB = _LOOKED.returncode == 0


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason="matplotlib is not installed for the jail's Python")
async def test_a_plot_becomes_a_picture(runner: Daemon) -> None:
    code = """
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plot
plot.plot([1, 3, 2])
plot.title('ä')
plot.savefig('plot.png')
"""
    reply = await runner.execute(code, session=SESSION)
    assert reply.json["run"]["code"] == 0, reply.json["run"]
    assert "plot.png" in [each["name"] for each in reply.json["files"]]
    picture = (await runner.file(SESSION, "plot.png")).body
    assert picture.startswith(b"\x89PNG\r\n")
