"""Histories by hand in which deliveries are wrong in time, number or order: Q4 to Q11."""

from tests.helpers.histories.by_hand import Collection, Run

OF_DELIVERIES = Collection()
bad, good = OF_DELIVERIES.bad, OF_DELIVERIES.good

# Q4 -------------------------------------------------------------------------------------------------------------------


@bad("Q4")
def two_holders_within_the_timeout(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.work_off("a", at_s=30, count=1)


@bad("Q4")
def the_timeout_of_the_message_was_not_used(run: Run) -> None:
    run.publish("a", timeout_s=600)
    run.deliver("a", at_s=1)
    run.work_off("a", at_s=62, count=1)


@bad("Q4")
def a_touch_was_forgotten(run: Run) -> None:
    run.publish("a", timeout_s=10)
    run.deliver("a", at_s=1, lease="L")
    run.settle("touch", "a", at_s=5, lease="L", timeout_s=60)
    run.work_off("a", at_s=20, count=1)


@bad("Q4")
def a_refused_nack_let_it_go(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.settle("nack", "a", at_s=2, end="fail")
    run.work_off("a", at_s=3, count=1)


@bad("Q4")
def a_restart_dropped_the_lease(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.crash(10)
    run.work_off("a", at_s=11, count=1)


@bad("Q4")
def a_strict_queue_forgot_a_delivery_in_a_crash(run: Run) -> None:
    run.publish("a", strict=True)
    run.deliver("a", at_s=1)
    run.crash(1.11)
    run.work_off("a", at_s=2, count=1)


@bad("Q4")
def two_holders_whose_answers_overlap(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=2, lease="L1")
    run.deliver("a", at_s=1, end_s=4, lease="L2", count=1)
    run.ack("a", at_s=5, lease="L2")


@bad("Q4")
def a_failover_dropped_the_lease_while_a_fetch_waited(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.crash(20)
    run.deliver("a", at_s=1.05, end_s=21, count=1)
    run.ack("a", at_s=22, lease="L1")


@bad("Q4")
def what_comes_behind_both_answers_explains_neither(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=1.05, end_s=21, count=1)
    run.crash(21.4)
    run.ack("a", at_s=22, lease="L1")


# Q5, Q6 ---------------------------------------------------------------------------------------------------------------


@bad("Q5")
def delivered_before_its_delay(run: Run) -> None:
    run.publish("a", delay_s=5)
    run.deliver("a", at_s=4)
    run.ack("a", at_s=6)


@bad("Q5")
def a_restart_forgot_the_delay(run: Run) -> None:
    run.publish("a", delay_s=3600)
    run.crash(1)
    run.work_off("a", at_s=2)


@bad("Q5")
def delivered_before_the_delay_of_its_nack(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L")
    run.settle("nack", "a", at_s=2, lease="L", delay_s=10)
    run.work_off("a", at_s=5, count=1)


@bad("Q6")
def delivered_after_its_expiry(run: Run) -> None:
    run.publish("a", expires_s=10)
    run.work_off("a", at_s=12)


@bad("Q6")
def a_redelivery_made_the_expiry_grow(run: Run) -> None:
    run.publish("a", expires_s=10, timeout_s=5)
    run.deliver("a", at_s=1)
    run.work_off("a", at_s=15, count=1)


# Q7, Q8 ---------------------------------------------------------------------------------------------------------------


@bad("Q7")
def the_attempt_did_not_grow(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.work_off("a", at_s=70, count=0)


@bad("Q7")
def the_attempt_fell_back(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, count=0)
    run.deliver("a", at_s=70, count=1)
    run.work_off("a", at_s=140, count=0)


@bad("Q7")
def an_attempt_was_seen_by_nobody(run: Run) -> None:
    run.publish("a")
    run.work_off("a", at_s=1, count=1)


@bad("Q7")
def more_attempts_are_missing_than_fetches_were_lost(run: Run) -> None:
    run.publish("a")
    run.fetch_lost(0.5)
    run.work_off("a", at_s=70, count=2)


@bad("Q7")
def the_count_wrapped_at_256(run: Run) -> None:
    run.publish("a", timeout_s=5)
    for count in range(256):
        run.deliver("a", at_s=1 + 6.0 * count, count=count)
    run.work_off("a", at_s=2000, count=0)


@bad("Q8")
def delivered_more_often_than_allowed(run: Run) -> None:
    run.publish("a", max_deliveries=2, dead_letter="d")
    for count in range(3):
        run.deliver("a", at_s=1 + 70.0 * count, count=count)
    run.ack("a", at_s=142)


@bad("Q8")
def dead_lettered_twice(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.deliver("a", at_s=70, queue="d", uid="d1")
    run.work_off("a", at_s=71, queue="d", uid="d2", count=1)


@bad("Q8")
def dead_lettered_and_still_in_its_queue(run: Run) -> None:
    run.publish("a", max_deliveries=2, dead_letter="d")
    run.deliver("a", at_s=1)
    run.fetch_lost(65)
    run.deliver("a", at_s=130, queue="d", uid="d1")
    run.deliver("a", at_s=140, count=1)
    run.ack("a", at_s=141, queue="d")


@bad("Q8")
def acknowledged_and_dead_lettered(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.work_off("a", at_s=1)
    run.work_off("a", at_s=70, queue="d", uid="d1")


@bad("Q8")
def dead_lettered_too_early(run: Run) -> None:
    run.publish("a", max_deliveries=3, dead_letter="d")
    run.deliver("a", at_s=1)
    run.work_off("a", at_s=70, queue="d", uid="d1")


# Q9, Q10, Q11 ---------------------------------------------------------------------------------------------------------


@bad("Q9")
def one_receipt_was_acknowledged_twice(run: Run) -> None:
    run.publish("a")
    run.deliver("a", lease="L")
    run.ack("a", at_s=2, lease="L")
    run.ack("a", at_s=3, lease="L")


@bad("Q9")
def an_older_receipt_was_accepted(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L1")
    run.deliver("a", at_s=70, lease="L2", count=1)
    run.ack("a", at_s=71, lease="L1")


@bad("Q9")
def both_holders_could_acknowledge(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L1")
    run.deliver("a", at_s=70, lease="L2", count=1)
    run.ack("a", at_s=71, lease="L2")
    run.ack("a", at_s=71.05)


@bad("Q10")
def one_id_was_stored_twice(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.publish("a", at_s=1, publish_id="i", uid="u2")
    run.work_off("a", at_s=2, uid="u1")


@bad("Q10")
def one_id_was_delivered_as_two_messages(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.publish("a", at_s=1, publish_id="i", end="unknown")
    run.deliver("a", at_s=2, uid="u1")
    run.work_off("a", at_s=3, uid="u2")


@bad("Q10")
def one_id_made_two_tasks(run: Run) -> None:
    for task in "ab":
        run.publish(task, publish_id="i")
        run.deliver(task)
        run.ack(task)


@bad("Q10")
def a_crash_forgot_the_id(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.crash(0.5)
    run.publish("a", at_s=1, publish_id="i", uid="u2")
    run.work_off("a", at_s=2, uid="u2")


@bad("Q11")
def a_younger_message_overtook(run: Run) -> None:
    run.publish("a", at_s=0)
    run.publish("b", at_s=1)
    run.deliver("b", at_s=2)
    run.work_off("a", at_s=3)
    run.ack("b", at_s=4)


@bad("Q11")
def a_younger_message_stood_first_in_one_answer(run: Run) -> None:
    run.publish("a", at_s=0)
    run.publish("b", at_s=1)
    run.deliver("b", "a", at_s=2)
    run.ack("a", at_s=4)
    run.ack("b", at_s=4)


@bad("Q11")
def a_larger_priority_overtook(run: Run) -> None:
    run.publish("urgent", at_s=0, priority=-20)
    run.publish("later", at_s=0, priority=20)
    run.deliver("later", at_s=2)
    run.work_off("urgent", at_s=3)
    run.ack("later", at_s=4)


# Odd, and correct -----------------------------------------------------------------------------------------------------


@good
def a_lost_publish_answer_that_was_never_stored(run: Run) -> None:
    run.publish("a", end="unknown")


@good
def a_delivery_that_overlaps_the_ack(run: Run) -> None:
    run.publish("a", timeout_s=5)
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=5, end_s=7, count=1)
    run.ack("a", at_s=6.0, lease="L1")


@good
def a_fast_delivery_that_died_with_the_broker(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="1.1")
    run.crash(1.11)
    run.deliver("a", at_s=2, lease="2.1")
    run.ack("a", at_s=3, lease="2.1")


@good
def an_answer_of_a_leader_that_was_cut_off_arrives_together_with_the_ack_of_the_next_one(run: Run) -> None:
    run.publish("a")
    run.crash(1.5)
    run.deliver("a", at_s=2, lease="2.1")
    run.ack("a", at_s=3, lease="2.1")
    run.deliver("a", at_s=1, end_s=3.4, lease="1.1")


@good
def a_lost_fetch_that_explains_a_missing_attempt(run: Run) -> None:
    run.publish("a")
    run.fetch_lost(0.5)
    run.work_off("a", at_s=70, count=1)


@good
def a_message_that_expired_unseen(run: Run) -> None:
    run.publish("a", expires_s=10)
    run.end_at(30)


@good
def an_ack_in_the_name_of_another_queue(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2, queue="wrong", known=False)
    run.ack("a", at_s=3)
