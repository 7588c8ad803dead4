"""How does the kit become one file that a node's own Python runs?"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

KIT = Path(__file__).with_name("kit")
PACKAGE = "firstfault_probe"
FILE_NAME = "firstfault-probe.pyz"
_MAIN = f"import sys\n\nfrom {PACKAGE}.main import main\n\nsys.exit(main())\n"
# A fixed date makes the same source give the same bytes, so that a site can pin the file's hash.
_DATE = (2020, 1, 1, 0, 0, 0)


def build_kit() -> bytes:
    """The zipapp as bytes: a shebang line and a zip archive of the kit's modules."""
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        members = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in KIT.glob("*.py")}
        members["__main__.py"] = _MAIN.encode()
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, members[name])
    return buffer.getvalue()


def write_kit(folder: Path) -> Path:
    """Write the kit into `folder` and return its path."""
    path = folder / FILE_NAME
    path.write_bytes(build_kit())
    path.chmod(0o755)
    return path
