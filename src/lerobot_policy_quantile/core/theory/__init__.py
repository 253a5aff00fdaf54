"""The paper's theory, computed: laws, scores (Theorem 1), center updates (Theorem 2), checks."""
