"""The command: `sandbox-runner serve`."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from image.hooks import HooksError
from image.runtimes import RuntimesError
from jail.errors import JailError
from runner import log, server
from runner.settings import Settings, SettingsError
from runner.workspace.dataroot import DataRootUnusable

#: sysexits.h EX_CONFIG: what stands in the way is in the settings or on the machine.
EXIT_CONFIG = 78


def main(argv: list[str] | None = None) -> int:
    """Parses the command line and runs; the exit status is for the shell."""
    parser = argparse.ArgumentParser(
        prog="sandbox-runner",
        description="A stateful sandbox for untrusted code. Settings are RUNNER_* variables.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="serve on RUNNER_HOST and RUNNER_PORT")
    parser.parse_args(argv)
    return _serve()


def _serve() -> int:
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        print(f"sandbox-runner: {error}", file=sys.stderr)
        return EXIT_CONFIG
    log.configure(settings.log_format)
    for name in Settings.unknown_names(os.environ):
        logging.getLogger("runner").warning("not a setting of ours", extra={"variable": name})
    if os.geteuid() != 0:
        print("sandbox-runner: it has to run as root", file=sys.stderr)
        return EXIT_CONFIG
    try:
        return server.run(settings)
    except (DataRootUnusable, HooksError, RuntimesError, JailError) as error:
        print(f"sandbox-runner: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except OSError as error:
        print(f"sandbox-runner: cannot serve: {error}", file=sys.stderr)
        return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main())
