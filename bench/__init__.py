"""Benches: one question a file, a ratio each, and a bar that a ratio holds or does not."""
