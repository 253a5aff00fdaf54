"""Results of studies in miniature: small files of outcomes, verdicts on the paper's claims, and a page per study."""
