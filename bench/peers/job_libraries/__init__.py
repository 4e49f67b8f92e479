"""The job libraries of W7: how each is started, its job, and the environment that all of them but wakeq run in.

Imported by the benchmark and by the processes of the libraries, so nothing is done when this is imported.
"""
