"""The LIBERO suites, LIBERO-Plus and LIBERO-Pro as scenes, and where their assets and data come from."""
