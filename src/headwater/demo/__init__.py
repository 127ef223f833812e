"""What `headwater demo` shows: the product among kills, races and others' hands, and what becomes of the rows.

    schedule             which steps, drawn from a seed
    children             processes that are started, spoken with in lines of JSON, killed and ended
    owner writer lander  what these processes do
    stopping_catalog     a catalog that stops whoever commits, at a named point, so that a kill comes there
    rows acknowledged    what is written, and what was acknowledged: kept here, outside the log
    wreckers             what others do to the tables: compaction, expiry, rollback, damage
    crew steps           the processes together, and what each step does to them
    chaos                the run
    verdict              is every acknowledged row there, once?  by plain pyiceberg, without a line of the product's
    beside_spark         the same steps against Iceberg's own sink of Spark Structured Streaming

NOT HERE How it looks: cli/demo.py and cli/demo_picture.py.
"""
