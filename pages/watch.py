"""Watch: what another program trains, live."""

from app.watch.page import page

page()
