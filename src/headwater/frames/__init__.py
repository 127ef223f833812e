"""The format, pure: bytes in, facts out, no I/O and no judgement."""
