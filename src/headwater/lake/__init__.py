"""The lake: tables, the landing of rows into them, and the ledger of what landed.  No Spark here."""
