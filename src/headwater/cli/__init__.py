"""The command line: one file and one function a command.  Each parses, calls and prints; decisions live below."""
