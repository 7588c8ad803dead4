"""Bytes in, evidence out: collects pasted text, files, folders and archives into one incident."""
