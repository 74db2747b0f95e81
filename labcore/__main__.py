"""`python -m labcore`: the lab without a browser."""

import sys

try:
    from labcore.cli.main import main
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] == "labcore":
        raise
    sys.exit(f"labcore: {error.name} is not installed for {sys.executable}: activate the environment that make run "
             "has made (. .venv/bin/activate), or pip install -r requirements.txt.")

sys.exit(main())
