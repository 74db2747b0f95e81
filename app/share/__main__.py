"""Write runs into a shared file: `python app/share RUN [RUN …] FILE`. `labcore export --html` runs it, since the engine
does not import the page's code.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:  # a folder that is run has only itself on the path
    sys.path.insert(0, ROOT)

from streamlit.logger import set_log_level

set_log_level("ERROR")  # it would warn that no server runs

from app.share import document
from labcore.errors import LabError
from labcore.runs.store.store import Store


def main(words: list[str]) -> int:
    """Write the file. Returns 1 where it cannot be written, after a sentence that says why."""
    *runs, file = words
    try:
        document.write(document.of_runs(Store(reads=True), runs), Path(file))
    except LabError as error:
        print(f"labcore: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
