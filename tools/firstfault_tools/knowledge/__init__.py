"""The knowledge folder as data: pages with fixes, and the packed cache that makes loading quick."""
