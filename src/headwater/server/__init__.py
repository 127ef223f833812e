"""The server: Flight and HTTP over an engine.  Thin: parse, check, call."""
