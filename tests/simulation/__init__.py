"""The simulation: whole clusters of the real consensus core under one seeded scheduler, with everything that can go
wrong going wrong.

    seed --> knobs --> world (nodes, network, disks, clocks, clients, faults) --> trace hash, or the first violation

    python -m tests.simulation --seeds 1000 --mode safety        many seeds
    python -m tests.simulation --seed 17 --mode safety --trace   one seed, told event by event
    python -m tests.simulation --mutants                         how many seeds each planted bug takes

Same seed, same trace.  Nothing here reads a clock, a socket, a file or a chance that is not the seed's.
"""
