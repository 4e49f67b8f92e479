"""A calculator: a MoniQue component over WebSocket.

python examples/monique/calculator.py       # beside `make serve`; append ws://HOST:PORT/ for another server
wakeq monique push example_calculator config JSON examples/monique/calculator.json --wait 5
"""

import sys
from typing import Any

from wakeq import WakeqError
from wakeq.monique import ErrorCode, MoniqueClient

SPEC = "example_calculator"
ACTIONS = {
    "+": lambda first, second: first + second,
    "-": lambda first, second: first - second,
    "*": lambda first, second: first * second,
    "/": lambda first, second: first / second,
}
# Errors in a task; a WakeqError means that it is not even JSON.
MISTAKES = (KeyError, TypeError, ZeroDivisionError, WakeqError)


def calculate(task: dict[str, Any]) -> float:
    answer: float = ACTIONS[task["action"]](task["first"], task["second"])
    return answer


def main(address: str) -> None:
    with MoniqueClient(address, creator="0000-0000-0000-calculator") as client:
        client.subscribe((SPEC, "config"))
        print(f"ready to calculate for {client.address}", flush=True)
        for task in client.listen():
            try:
                answer = calculate(task.value())
            except MISTAKES as error:
                client.error(task, ErrorCode.INPUT, repr(error))
            else:
                client.result(task, {"answer": answer})
                print(f"answered {answer}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:8080"])
