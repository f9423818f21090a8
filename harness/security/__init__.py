"""Security of a test's cluster: certificates of a throw-away authority (A5)."""
