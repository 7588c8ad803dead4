"""How does the page look and behave? Streamlit's settings as flags, and the style sheet.

Flags are passed on the command line, so that no settings file of the working folder is needed and an
installed wheel looks like the checkout.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LIGHT: Mapping[str, str] = {
    "primaryColor": "#2456c7",
    "backgroundColor": "#fcfcfd",
    "secondaryBackgroundColor": "#f3f5f8",
    "textColor": "#161b24",
    "linkColor": "#2456c7",
    "borderColor": "#d9dee7",
    "codeBackgroundColor": "#f3f5f8",
    "codeTextColor": "#161b24",
    "grayTextColor": "#566071",
}
DARK: Mapping[str, str] = {
    "primaryColor": "#8fb4ff",
    "backgroundColor": "#0d1117",
    "secondaryBackgroundColor": "#161b23",
    "textColor": "#e7eaf0",
    "linkColor": "#8fb4ff",
    "borderColor": "#2a313d",
    "codeBackgroundColor": "#10141a",
    "codeTextColor": "#e7eaf0",
    "grayTextColor": "#9da7b8",
}
SIDEBAR: Mapping[str, Mapping[str, str]] = {
    "light": {"backgroundColor": "#f5f7fa", "secondaryBackgroundColor": "#ffffff"},
    "dark": {"backgroundColor": "#10141a", "secondaryBackgroundColor": "#1a202a"},
}
SHARED: Mapping[str, str] = {
    "baseRadius": "8px",
    "buttonRadius": "8px",
    "baseFontSize": "15",
    "codeFontSize": "0.82rem",
    "showWidgetBorder": "true",
    "showSidebarBorder": "true",
    "headingFontWeights": "[700, 650, 600, 600, 600, 600]",
    "headingFontSizes": '["1.9rem", "1.35rem", "1.1rem", "1rem", "0.95rem", "0.9rem"]',
}


def streamlit_flags(address: str, port: int, upload_mib: int) -> list[str]:
    """Flags of `streamlit run`. upload_mib bounds one upload and one message."""
    options = {
        "server.address": address,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "server.maxUploadSize": str(upload_mib),
        "server.maxMessageSize": str(max(200, upload_mib)),
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        "client.showErrorDetails": "none",
        "client.toolbarMode": "minimal",
        "client.showSidebarNavigation": "false",
        "runner.magicEnabled": "false",
        "runner.postScriptGC": "false",
    }
    options |= {f"theme.{k}": v for k, v in SHARED.items()}
    for base, palette in (("light", LIGHT), ("dark", DARK)):
        options |= {f"theme.{base}.{k}": v for k, v in palette.items()}
        options |= {f"theme.{base}.sidebar.{k}": v for k, v in SIDEBAR[base].items()}
    return [f"--{name}={value}" for name, value in options.items()]


@cache
def style_sheet(base: str) -> str:
    """The style sheet as an element. base: `light` or `dark`, for what hangs outside the application's own element."""
    text = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return (
        f"<style>:root {{ color-scheme: {'dark' if base == 'dark' else 'light'}; }}\n{text}</style>"
    )


def logo_file() -> Path:
    """The sign of the product: lanes, one of which stops early."""
    return Path(__file__).with_name("logo.svg")


@cache
def write_brand() -> str:
    """Sign and name."""
    data = base64.b64encode(logo_file().read_bytes()).decode()
    return (
        f'<div class="ff ff-brand"><img alt="" src="data:image/svg+xml;base64,{data}">'
        "<span>Firstfault</span></div>"
    )
