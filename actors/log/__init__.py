"""log: the actor through which every change passes, its peers, and the transfer of images.

Begin with raft_log.py: RaftLog is told what queues have for the log, what peers say and what the disk has done.  Its
parts are objects of their own: writer.py (the files), pending.py (what is not committed yet, and who asked),
admission.py (what is refused for want of room), leadership.py (who leads next), members.py (the other nodes),
leader_watch.py (what the node's log says of it).  peer.py is the actor of another node, images.py the one that sends
and receives images.
"""
