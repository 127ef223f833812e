"""Topics: rows of a schema, partitioned, appended by many and read by many, on a shared log."""
