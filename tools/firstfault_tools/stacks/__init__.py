"""Where was every process standing? Readers of Python and native stack dumps."""
