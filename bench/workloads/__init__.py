"""The workloads, by name: what each one does, which figures it gives, and for whom it makes sense."""

from bench.workloads import backlog, clients, fleet, growth, jobs, mixtures, monique, single, sleepers, steady, taskflux
from bench.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (steady, single, sleepers, backlog, jobs, growth, clients, taskflux, monique, fleet, mixtures)
    for workload in module.WORKLOADS
}

__all__ = ["WORKLOADS", "Workload"]
