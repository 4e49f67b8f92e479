"""Histories by hand in which messages are lost, invented, changed, or delivered after an ack: Q1, Q2, Q3."""

from tests.helpers.histories.by_hand import Collection, Run

OF_MESSAGES = Collection()
bad = OF_MESSAGES.bad

# Q1 -------------------------------------------------------------------------------------------------------------------


@bad("Q1")
def published_and_never_seen(run: Run) -> None:
    run.publish("a")


@bad("Q1")
def delivered_and_never_acknowledged_nor_there(run: Run) -> None:
    run.publish("a")
    run.deliver("a")


@bad("Q1")
def unknown_publish_was_delivered_once_and_is_gone(run: Run) -> None:
    run.publish("a", end="unknown")
    run.deliver("a")


@bad("Q1")
def only_half_of_a_batch_is_there(run: Run) -> None:
    run.publish("a", end="unknown", batch=1)
    run.publish("b", end="unknown", batch=1)
    run.deliver("a")
    run.ack("a")


@bad("Q1")
def one_of_a_confirmed_batch_is_missing(run: Run) -> None:
    run.publish("a", batch=1)
    run.publish("b", batch=1)
    run.deliver("a")
    run.ack("a")


@bad("Q1")
def nacked_and_never_seen_again(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.settle("nack", "a")


@bad("Q1")
def a_refused_ack_is_no_ack(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", end="fail")


@bad("Q1")
def the_first_ack_is_told_that_it_is_gone(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", known=False)


@bad("Q1")
def called_gone_while_it_was_there(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", known=False)
    run.ack("a", at_s=3)


@bad("Q1")
def gone_before_its_expiry(run: Run) -> None:
    run.publish("a", expires_s=100)
    run.end_at(50)


@bad("Q1")
def lost_by_a_crash(run: Run) -> None:
    run.publish("a")
    run.crash(0.2)
    run.end_at(100)


@bad("Q1")
def dead_lettered_and_lost_there(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.deliver("a", at_s=70, queue="d", uid="dead-a")


@bad("Q1")
def deliveries_used_up_and_no_dead_letter(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.end_at(200)


# Q2 -------------------------------------------------------------------------------------------------------------------


@bad("Q2")
def nobody_published_it(run: Run) -> None:
    run.deliver("ghost")


@bad("Q2")
def delivered_before_its_publish_was_sent(run: Run) -> None:
    run.deliver("a", at_s=0.0)
    run.publish("a", at_s=5.0)
    run.ack("a", at_s=6.0)


@bad("Q2")
def the_body_was_changed(run: Run) -> None:
    run.publish("a")
    run.deliver("a", digest=8)
    run.ack("a")


@bad("Q2")
def a_refused_publish_was_delivered(run: Run) -> None:
    run.publish("a", end="fail")
    run.deliver("a")
    run.ack("a")


@bad("Q2")
def delivered_from_another_queue(run: Run) -> None:
    run.publish("a")
    run.deliver("a", queue="r")
    run.ack("a")


@bad("Q2")
def delivered_under_another_uid_than_promised(run: Run) -> None:
    run.publish("a", uid="u1")
    run.deliver("a", uid="u2")
    run.ack("a")


@bad("Q2")
def redelivered_under_another_uid(run: Run) -> None:
    run.publish("a", end="unknown")
    run.deliver("a", uid="u1")
    run.work_off("a", at_s=70, count=1, uid="u2")


@bad("Q2")
def two_messages_have_one_uid(run: Run) -> None:
    for task in "ab":
        run.publish(task, uid="u")
        run.deliver(task, uid="u")
        run.ack(task)


# Q3 -------------------------------------------------------------------------------------------------------------------


@bad("Q3")
def delivered_after_a_confirmed_ack(run: Run) -> None:
    run.publish("a")
    run.work_off("a", at_s=1)
    run.deliver("a", at_s=70, count=1)


@bad("Q3")
def an_ack_came_back_after_a_crash(run: Run) -> None:
    run.publish("a")
    run.work_off("a", at_s=1)
    run.crash(2.2)
    run.work_off("a", at_s=3, count=1)


@bad("Q3")
def delivered_after_it_was_called_gone(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2, end="unknown")
    run.ack("a", at_s=3, known=False)
    run.deliver("a", at_s=70, count=1)


@bad("Q3")
def a_deposed_leader_sent_what_the_next_one_was_told_to_be_done(run: Run) -> None:
    run.publish("a")
    run.crash(1.5)
    run.deliver("a", at_s=2, lease="2.1")
    run.ack("a", at_s=3, lease="2.1")
    run.deliver("a", at_s=1, end_s=4, lease="1.1")  # it stood behind what was never committed


@bad("Q3")
def a_fetch_that_waited_got_what_was_acknowledged_meanwhile(run: Run) -> None:
    run.publish("a", timeout_s=5)
    run.deliver("a", at_s=1, lease="L1")
    run.deliver("a", at_s=7, lease="L2", count=1)
    run.ack("a", at_s=8, lease="L2")
    run.deliver("a", at_s=2, end_s=20, lease="L3", count=2)


@bad("Q3")
def a_dead_letter_came_back_after_its_ack(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.work_off("a", at_s=70, queue="d", uid="dead-a")
    run.deliver("a", at_s=140, queue="d", uid="dead-a", count=1)
