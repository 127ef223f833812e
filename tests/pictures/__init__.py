"""The pictures of docs/pictures, made anew: `python -m tests.pictures`."""
