"""Who failed to meet whom? Readers of what collective communication leaves behind."""
