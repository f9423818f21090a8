"""Security of a test's cluster: certificates of a throw-away authority, and an issuer of tokens (A5)."""
