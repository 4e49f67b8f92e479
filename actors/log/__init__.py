"""log: the actor through which every change passes (raft_log.py), its peers, and the transfer of images."""
