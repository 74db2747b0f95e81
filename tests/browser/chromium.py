"""Find a Chromium for the browser tests, or install one. `python -m tests.browser.chromium` says what it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The path of a Chromium: $RL_LAB_CHROMIUM, one on the PATH, or the one that Playwright downloaded."""
    if chosen := os.environ.get("RL_LAB_CHROMIUM"):
        return chosen
    for name in NAMES:
        if (path := shutil.which(name)) and _starts(path):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def install() -> None:
    """Install one: Debian's package where this is root on Debian or Ubuntu, else Playwright's own download."""
    if shutil.which("apt-get") and os.geteuid() == 0 and "debian" in _system():
        print("No Chromium found: installing the package chromium with apt-get.", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=True,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL)
        if find():
            return
    print("No Chromium found: downloading Playwright's.", flush=True)
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


def _starts(path: str) -> bool:
    """Whether it is a browser: on Ubuntu the package may be a stub that only asks for another installer."""
    return subprocess.run([path, "--version"], capture_output=True).returncode == 0


def _system() -> str:
    release = Path("/etc/os-release")
    return release.read_text(encoding="utf-8") if release.exists() else ""


def main() -> int:
    """Make sure that there is one. Returns 0, or 1 after a sentence that says what to do."""
    if not find():
        try:
            install()
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"Chromium could not be installed ({error}): install it by hand, or set RL_LAB_CHROMIUM to its "
                  "path.", file=sys.stderr)
            return 1
    print(f"Browser tests use {find()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
