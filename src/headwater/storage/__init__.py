"""Bytes, and what survives: the seam between Headwater and a disk."""
