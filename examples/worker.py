"""A worker: a function that is called for each message.

python examples/worker.py                   # beside `make serve`; Ctrl-C stops it after running calls have ended
wakeq pub emails '{"to": "ada@example.org"}'
"""

from wakeq import Retry, Worker

worker = Worker(concurrency=4)


@worker.task("emails", retry=Retry(max=5, backoff="exponential"))
def send(to: str) -> None:
    """Handle a message. After an exception it is retried, up to five times, and then becomes a dead letter."""
    print(f"sent {to}", flush=True)


# Another program may import this file to call `send.publish(to=...)`.
if __name__ == "__main__":
    worker.run()
