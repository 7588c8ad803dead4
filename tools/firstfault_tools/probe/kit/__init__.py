"""What runs on the node: standard library and the node's own torch, packed into one file.

Modules here import only the standard library and each other (relatively), since the packed file holds
nothing else; torch is imported inside functions. They keep to Python 3.9, which clusters still run.
"""
