"""The workloads, by name: their work, their figures, and the peers that can do them."""

from bench.workloads import backlog, clients, fleet, growth, jobs, mixtures, monique, single, sleepers, steady, taskflux
from bench.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (steady, single, sleepers, backlog, jobs, growth, clients, taskflux, monique, fleet, mixtures)
    for workload in module.WORKLOADS
}

__all__ = ["WORKLOADS", "Workload"]
