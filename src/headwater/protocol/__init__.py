"""The wire: what a client and a server say to each other over Arrow Flight (docs/protocol.md).  No connection here."""
