"""Reading logs: lines, speakers, signatures, tracebacks, watchdog lines, exit codes."""
