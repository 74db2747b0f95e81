"""Find a Chromium for the browser tests, or install one. `python -m tests.browser.chromium` says what it does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The shell has no windows: half the package, and less work for each page. Text is laid out by the fonts.
PACKAGES = ("chromium-headless-shell", "fonts-liberation")


def find() -> str | None:
    """The path of a Chromium: $RL_LAB_CHROMIUM, one on the PATH, or the one that Playwright downloaded."""
    if path := installed():
        return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def installed() -> str | None:
    """The path of $RL_LAB_CHROMIUM or of one on the PATH: what can be known without Playwright."""
    if chosen := os.environ.get("RL_LAB_CHROMIUM"):
        return chosen
    return next((path for name in NAMES if (path := shutil.which(name)) and _starts(path)), None)


def install_package() -> None:
    """Install Debian's package, where this is root on Debian. It needs no Playwright."""
    if shutil.which("apt-get") and os.geteuid() == 0 and "ID=debian" in _system():
        print(f"No Chromium found: installing {' and '.join(PACKAGES)} with apt-get.", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES], check=True,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL)


def download() -> None:
    print("No Chromium found: downloading Playwright's.", flush=True)
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


def _starts(path: str) -> bool:
    """Whether it is a browser: on Ubuntu the package may be a stub that only asks for another installer."""
    return subprocess.run([path, "--version"], capture_output=True).returncode == 0


def _system() -> list[str]:
    release = Path("/etc/os-release")
    return release.read_text(encoding="utf-8").splitlines() if release.exists() else []


def main(arguments: list[str]) -> int:
    """Make sure that there is one. Returns 0, or 1 after a sentence that says what to do.

    With `--package` only Debian's package is tried, before there is a Playwright; where that fails, the call without it
    tries all there is.
    """
    early = arguments == ["--package"]
    try:
        if not (installed() if early else find()):
            install_package()
            if not early and not find():
                download()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"Chromium could not be installed ({error}): install it by hand, or set RL_LAB_CHROMIUM to its path.",
              file=sys.stderr)
        return 0 if early else 1
    if not early:
        print(f"Browser tests use {find()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
