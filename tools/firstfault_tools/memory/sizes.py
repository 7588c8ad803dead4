"""How many bytes is a GiB? Apart from the estimate, for who only reads a message."""

GIB = 1 << 30
