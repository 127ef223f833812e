"""The tutorial, typed into a real terminal as a newcomer would: `python -m tests.tutorial`."""
