"""web: what is served over HTTP."""
