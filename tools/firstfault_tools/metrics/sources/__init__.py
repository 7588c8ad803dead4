"""Which step rows do logs, event files and tracker exports hold?"""
