"""Builds the two small C programs of the jail beside the Python package.

Everything else stands in pyproject.toml. They are ordinary static executables, not extension
modules: one runs before nsjail and one is PID 1 inside the jail, where no Python is wanted.
"""

import os
import pathlib
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
FLAGS = ["-std=gnu11", "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror"]


class BuildNative(build_py):
    """Compiles jail/native/NAME.c to jail/bin/NAME before the Python files are collected."""

    def run(self) -> None:
        bin_dir = ROOT / "jail" / "bin"
        bin_dir.mkdir(exist_ok=True)
        for source in sorted((ROOT / "jail" / "native").glob("*.c")):
            target = bin_dir / source.stem
            compiler = os.environ.get("CC", "cc")
            # Built beside and renamed, so that a running daemon never sees half a binary.
            scratch = target.with_suffix(".new")
            subprocess.run([compiler, *FLAGS, "-o", str(scratch), str(source)], check=True)
            scratch.rename(target)
        super().run()


setup(cmdclass={"build_py": BuildNative})
