"""A worker: a function that is called for each message, and may be called from anywhere by a message.

python examples/worker.py                   # beside `make serve`; Ctrl-C ends it, and running calls end first
wakeq pub emails '{"to": "ada@example.org"}'
"""

from wakeq import Retry, Worker

worker = Worker(concurrency=4)


@worker.task("emails", retry=Retry(max=5, backoff="exponential"))
def send(to: str) -> None:
    """Do what the message asks for; what raises here is tried again, five times, and is then a dead letter."""
    print(f"sent {to}", flush=True)


if __name__ == "__main__":  # another program imports this file to call `send.publish(to=...)`
    worker.run()
