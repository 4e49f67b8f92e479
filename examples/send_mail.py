"""A mail sender: retries mails that may succeed later, and makes dead letters of those that never will.

    wakeq run examples.send_mail:worker         # with SMTP_SERVER=HOST:PORT; else localhost:25
    python -m examples.send_mail ada@example.org "Good morning" "The text of the mail."

If the mail server is down, or answers "not now" (4xx), the mail is retried at growing intervals for about a day. If it
answers "never" (5xx), the message becomes a dead letter: see `wakeq queue peek mails.dead`.
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
    # The same for each try, so that mail programs recognize a second copy.
    mail["Message-ID"] = f"<{current().uid}@example.org>"
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
