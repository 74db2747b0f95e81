"""A run without a server: the parts of the run page, filled from the data of one file.

Streamlit never mounts it: `app.share.document` puts it into the file together with the components that it draws with.
"""

from __future__ import annotations

from pathlib import Path

from app.components.component import Component

SHARED = Component(Path(__file__).parent)
