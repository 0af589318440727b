"""What the image weighs: its layers, and the packages that weigh most in them."""

from __future__ import annotations

import json

from tests.e2e.demo import NotAsSaid
from tests.image.podman import IMAGE, in_a_shell, podman

#: With python, node and bash.
SIZE_MAX = 350_000_000
#: The beginning of what made a layer, and what to call it.
_NAMES = {
    "apt-get install": "packages of image/packages.txt",
    "in /opt/sandbox-runner": "the virtual environment",
    'CMD ["bash"]': "base: Debian 12, minimal",
}
_QUERY = (
    "dpkg-query --show --showformat '${Installed-Size} ${Package}\\n' | sort -rn | head -12;"
    "du -sk /opt/sandbox-runner/lib/python3*/site-packages/* | sort -rn | head -4 |"
    " sed 's,/opt.*/,venv: ,'"
)


async def table() -> str:
    """Layers of more than 0.1 MB, and what is large; raises `NotAsSaid` if all is too large."""
    inspected = json.loads((await podman("image", "inspect", IMAGE)).out)[0]
    size = inspected["Size"]
    rows = [f"{'all':40} {size / 1e6:8.1f} MB   (at most {SIZE_MAX / 1e6:.0f})"]
    history = (await podman("history", "--format=json", "--no-trunc", IMAGE)).out
    for layer in reversed(json.loads(history)):
        made_by = layer["CreatedBy"]
        name = next((name for start, name in _NAMES.items() if start in made_by), None)
        if layer["size"] > 100_000:
            rows.append(f"{name or made_by[:38]:40} {layer['size'] / 1e6:8.1f} MB")
    rows.append("of which")
    for line in (await in_a_shell(_QUERY)).splitlines():
        kib, name = line.split(maxsplit=1)
        rows.append(f"  {name:38} {int(kib) * 1.024 / 1000:8.1f} MB")
    if size > SIZE_MAX:
        raise NotAsSaid(f"the image has {size} bytes")
    return "\n".join(rows)
