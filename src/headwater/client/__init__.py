"""The client: an engine for Log and Topic that asks a server.  It owns no log and needs no disk."""
