"""The command: `sandbox-runner serve | doctor | openapi`."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys

from image import doctor, runtimes
from image.hooks import HooksError
from image.runtimes import RuntimesError
from jail.errors import JailError
from runner import log, server
from runner.app import ROUTES
from runner.openapi import document
from runner.settings import Settings, SettingsError
from runner.workspace.dataroot import DataRootUnusable

#: sysexits.h EX_CONFIG: what stands in the way is in the settings or on the machine.
EXIT_CONFIG = 78
#: What `image` cannot read, by the setting that says where it is: `image` knows no settings.
_SET_BY: dict[type[Exception], str] = {
    HooksError: "RUNNER_BOOT_HOOKS: ",
    RuntimesError: "RUNNER_RUNTIMES: ",
}


def main(argv: list[str] | None = None) -> int:
    """Parses the command line and runs; the exit status is for the shell."""
    parser = argparse.ArgumentParser(
        prog="sandbox-runner",
        description="A stateful sandbox for untrusted code. Settings are RUNNER_* variables.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="serve on RUNNER_HOST and RUNNER_PORT")
    doctor_parser = commands.add_parser("doctor", help="say what works on this machine")
    doctor_parser.add_argument("--json", action="store_true", help="for a program")
    commands.add_parser("openapi", help="print the contract")
    parsed = parser.parse_args(argv)
    if parsed.command == "openapi":
        print(json.dumps(document(ROUTES), indent=2))
        return 0
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        print(f"sandbox-runner: {error}", file=sys.stderr)
        return EXIT_CONFIG
    if os.geteuid() != 0:
        print("sandbox-runner: it has to run as root", file=sys.stderr)
        return EXIT_CONFIG
    try:
        return (
            _doctor(settings, as_json=parsed.json)
            if parsed.command == "doctor"
            else _serve(settings)
        )
    except (DataRootUnusable, HooksError, RuntimesError, JailError) as error:
        print(f"sandbox-runner: {_SET_BY.get(type(error), '')}{error}", file=sys.stderr)
        return EXIT_CONFIG
    except OSError as error:
        print(f"sandbox-runner: cannot serve: {error}", file=sys.stderr)
        return EXIT_CONFIG


def _serve(settings: Settings) -> int:
    log.configure(settings.log_format)
    for name in Settings.unknown_names(os.environ):
        logging.getLogger("runner").warning("not a setting of ours", extra={"variable": name})
    return server.run(settings)


def _doctor(settings: Settings, *, as_json: bool) -> int:
    """0 if nothing failed; what is only degraded is no failure."""
    checks = asyncio.run(
        doctor.examine(
            nsjail=settings.nsjail,
            data_root=settings.data_root,
            uid=settings.session_uid,
            gid=settings.session_gid,
            network=settings.network,
            runtimes=runtimes.load(settings.runtimes),
        )
    )
    print(doctor.as_json(checks) if as_json else doctor.table(checks))
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
