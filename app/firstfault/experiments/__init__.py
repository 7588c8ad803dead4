"""How is an experiment carried out? Trial after trial, each shown, run, and on record before the next."""
