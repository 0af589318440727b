"""What the deployment pages tell a reader to type is what the proofs run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from image.checks import CAPABILITIES
from tests.image.container import DATA_ROOT, FLAGS, READ_ONLY

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "docs/deploy"
KUBERNETES_VERSION = "1.33"


def manifests() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))


@pytest.mark.parametrize("manifest", list(manifests()), ids=lambda manifest: manifest["kind"])
def test_a_manifest_is_what_the_api_takes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest | {"spek": 1}, KUBERNETES_VERSION, strict=True)


def test_the_pod_has_the_capabilities_that_the_daemon_asks_for_and_no_others() -> None:
    pod = next(each for each in manifests() if each["kind"] == "Pod")
    context = pod["spec"]["containers"][0]["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert {f"CAP_{name}" for name in context["capabilities"]["add"]} == set(CAPABILITIES)
    mounted = {each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounted == {DATA_ROOT, *(flag.partition("=")[2] for flag in READ_ONLY if "=" in flag)}


@pytest.mark.parametrize("page", ["README.md", "docs/deploy/docker.md"])
def test_the_flags_on_a_page_are_those_of_the_proof(page: str) -> None:
    assert " ".join(FLAGS) in (ROOT / page).read_text("utf-8")
