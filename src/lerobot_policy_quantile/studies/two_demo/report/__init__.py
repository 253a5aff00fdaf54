"""Pictures and pages from plain records."""
