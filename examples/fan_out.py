"""Fan-out: one order becomes a charge, a parcel for each item, and a mail, all or none.

    python -m examples.fan_out                  # the worker
    wakeq pub orders '{"number": 7, "items": ["tea", "cup"]}'

Messages that a handler adds with `current().then` are published in the same step as its acknowledgement. A worker that
dies before that step has published nothing; one that completes it has published everything.
"""

from wakeq import Worker, current

worker = Worker()


@worker.task("orders")
async def accept(number: int, items: list[str]) -> None:
    now = current()
    now.then(charge, number=number)
    for item in items:
        now.then(pack, number=number, item=item)
    # Delivered a second later, and after all messages that are more urgent.
    now.then(thank.options(delay=1, priority=20), number=number)


@worker.task("charges")
async def charge(number: int) -> None:
    print(f"order {number}: charged", flush=True)


@worker.task("parcels")
async def pack(number: int, item: str) -> None:
    print(f"order {number}: packed {item}", flush=True)


@worker.task("thanks")
async def thank(number: int) -> None:
    print(f"order {number}: thanked", flush=True)


if __name__ == "__main__":
    worker.run()
