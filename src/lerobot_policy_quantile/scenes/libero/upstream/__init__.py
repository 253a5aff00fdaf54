"""LIBERO-Plus's and LIBERO-Pro's public repositories -> the data folders that the scenes read.

Nothing of a repository is run: its Python files are read as syntax trees, its pickles by the restricted unpickler.
"""
