#!/bin/sh
# Each night, add the day to the lake and make a report of it. Run by cron, as the user that runs the broker:
#
#     15 0 * * * /opt/shop/nightly.sh /var/lib/wakeq /srv/lake /srv/reports
#
# The lake may also be an address such as s3://shop/lake.
# It may be killed or run twice: the lake stores each event once, and the report is replaced.
set -eu

data=$1
lake=$2
reports=$3
day=${4:-$(date --utc --date=yesterday +%F)}
next=$(date --utc --date="$day + 1 day" +%F)

wakeq pipeline archive "$data" --to "$lake"
wakeq report "$data" --since "$day" --until "$next" --out "$reports/$day.html"
