"""Which subcommands does `firstfault` have? One module each, found by file name."""
