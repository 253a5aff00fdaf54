"""Simulated scenes behind one interface, and scripted experts that solve their tasks."""
