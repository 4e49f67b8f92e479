"""actors: who acts when.  Light processes that talk by messages only."""
