"""What tests share, room by room.  A helper sets a scene and looks at it; it never decides what is right.

    brokers     a broker: in memory, in a process, on the test's own loop; and stand-ins for one
    clusters    several nodes: by hand, or as processes
    clients     clients, from sessions without a socket to one that knows nothing of wakeq's code
    doors       connections without sockets, and what abusive clients send
    disks       disks that hang, lose power or forget; logs and images by hand
    network     ports, certificates, namespaces, a proxy that breaks connections
    loops       event loops whose time and turns a test decides
    models      naive models of a ledger
    histories   what clients asked and were told, and the checker that judges it
    loads       clients at work, and the crash loop around them
    journal     logs and journals by hand, and what a report must say of them
    monique, taskflux, raft     what the tests of one protocol share
    programs    processes that tests start: commands, a browser, strace

`examples.py` says how often a property is tried, `steps.py` counts what a piece of work costs.
"""
