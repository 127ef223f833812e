"""Spark as the engine of the pipeline: thin, because decisions live in `lake`.  The only home of pyspark."""
