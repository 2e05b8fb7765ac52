"""The command line: parse and wire; no logic of its own."""
