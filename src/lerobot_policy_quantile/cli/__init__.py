"""`qhead`: one file per command."""
