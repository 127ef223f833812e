"""A durable, partitioned, transactional event log for Python whose topics are Iceberg tables."""
