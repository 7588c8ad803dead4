"""Steps from an older database to this one; run on open."""
