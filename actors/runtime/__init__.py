"""runtime: processes, mailboxes, groups, timers, supervision.  Sees only pykka and the standard library."""
