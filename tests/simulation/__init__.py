"""The simulation: whole clusters of the real consensus core under one seeded scheduler, with all kinds of faults.

    seed --> knobs --> world (nodes, network, disks, clocks, clients, faults) --> trace hash, or the first violation

    python -m tests.simulation --seeds 1000 --mode safety        many seeds
    python -m tests.simulation --seed 17 --mode safety --trace   one seed, printed event by event
    python -m tests.simulation --mutants                         the number of seeds that find each planted bug

The same seed gives the same trace.  No code here reads a clock, a socket or a file, and the seed is the only source of
randomness.
"""
