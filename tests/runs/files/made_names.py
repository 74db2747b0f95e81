"""Names that somebody may write into a store, a capsule, a link or a manifest to be led out of the lab's folder.

None of them leads to anything outside a test's own folders: a lab with a fault may delete what they name.
"""

HOSTILE = ("../victim", "../victim/", "a/../../victim", "..", ".", "", "/no/such/place", "./victim",
           "..\\victim", "a\\..\\victim", "C:victim", "~", "~root", ".hidden", "victim.", "-rf", "a\0b", "../victim\0",
           "a\nb", "a b", "%2e%2e%2fvictim", "a%2f..", "$HOME", "*", "\ud800", "‥", "x" * 300, "é" * 200)
