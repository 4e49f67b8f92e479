"""The client of MoniQue over WebSocket; `wakeq.monique` has its public names.

Begin with blocking.py, the client for threads; aio.py is the same for an event loop. Both use session.py: the
conversation without a socket (Session), and where and when to connect (Connector). websocket.py has the frames, by the
package `websockets`, which only a client loads. posts.py makes and reads messages; components without a client use it
for messages over ZeroMQ.
"""
