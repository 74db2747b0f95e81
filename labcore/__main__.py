"""`python -m labcore`: the lab without a browser."""

import sys

from labcore.cli.main import main

sys.exit(main())
