"""A mail sender: tries again what may succeed later, and puts aside what never will.

    wakeq run examples.send_mail:worker         # with SMTP_SERVER=HOST:PORT; else localhost:25
    python -m examples.send_mail ada@example.org "Good morning" "The text of the mail."

A mail server that is away, or says "not now" (4xx), is asked again, less and less often, for about a day.  One that
says "never" (5xx) makes a dead letter: see it with `wakeq queue peek mails.dead`.
"""

import os
import smtplib
import sys
from email.message import EmailMessage

from wakeq import Reject, Retry, Worker, current

SENDER = "orders@example.org"
TRY_FOR_A_DAY = Retry(max=35, delay=5, backoff="exponential", delay_max=3600)

worker = Worker(concurrency=4)


@worker.task("mails", retry=TRY_FOR_A_DAY, max_run=120)
def send_mail(to: str, subject: str, text: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = SENDER, to, subject
    mail["Message-ID"] = f"<{current().uid}@example.org>"  # the same at each try, so that a second copy is known as one
    mail.set_content(text)
    host, _, port = os.environ.get("SMTP_SERVER", "localhost:25").rpartition(":")
    try:
        with smtplib.SMTP(host, int(port), timeout=30) as server:
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as refused:
        ((code, reason),) = refused.recipients.values()
        if code >= 500:
            raise Reject(f"{to}: {code} {reason.decode(errors='replace')}") from refused
        raise


if __name__ == "__main__":
    print(send_mail.publish(*sys.argv[1:4]))
