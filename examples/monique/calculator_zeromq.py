"""The calculator as a component over ZeroMQ, as in the original MoniQue.

    pip install 'wakeq[monique]'
    wakeq serve -f examples/monique/config.json
    python -m examples.monique.calculator_zeromq examples/monique/config.json
    cd examples/monique && wakeq monique push example_calculator config JSON calculator.json --wait 5

With a port of its own in config.json it gets its tasks from the controller at that port, and each task goes to one
component. With `--set monique.routes=example_calculator=calculations` at the broker, a task waits on a queue until it
is answered, even if a component dies meanwhile.
"""

import json
import sys
from pathlib import Path
from typing import Any

import zmq

from examples.monique.calculator import MISTAKES, SPEC, calculate
from wakeq.monique import ErrorCode, Post, error_of, read_post, result_of

CREATOR = "0000-0000-0000-calculator"


def main(config_path: str) -> None:
    config = json.loads(Path(config_path).read_text())
    addresses, own = config["deploy"]["monique"], config["params"].get(SPEC, {})
    context = zmq.Context()
    answers = context.socket(zmq.PUSH)
    answers.connect(f"tcp://{addresses['scheduler-in']['host']}:{addresses['scheduler-in']['comport']}")
    tasks = tasks_of(context, addresses, own.get("port"))
    print("ready to calculate", flush=True)
    while True:
        task = read_post(tasks.recv_multipart())
        answer = answered(task)
        answers.send_multipart(answer.frames)
        print(f"answered {answer.data.decode()}", flush=True)


def tasks_of(context: "zmq.Context[Any]", addresses: dict[str, Any], port: int | None) -> "zmq.Socket[bytes]":
    """Return the socket for tasks: of the controller, if there is one, else of the scheduler."""
    if port is not None:
        tasks = context.socket(zmq.PULL)
        tasks.connect(f"tcp://{addresses['controller']['host']}:{port}")
    else:
        tasks = context.socket(zmq.SUB)
        tasks.connect(f"tcp://{addresses['scheduler-out']['host']}:{addresses['scheduler-out']['comport']}")
        tasks.subscribe(f"config:{SPEC}:")
    return tasks


def answered(task: Post) -> Post:
    try:
        return result_of(task, {"answer": calculate(task.value())}, creator=CREATOR)
    except MISTAKES as error:
        return error_of(task, ErrorCode.INPUT, repr(error), creator=CREATOR)


if __name__ == "__main__":
    main(sys.argv[1])
