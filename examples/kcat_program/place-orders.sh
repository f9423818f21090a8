#!/bin/sh
# Places orders with kcat until SIGTERM, and prints how many. Exit code 0: Kafka has acknowledged all of them.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
open=true
trap 'open=false' TERM INT

mkfifo "$folder/orders"
kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t orders -K '|' -X enable.idempotence=true -X linger.ms=5 < "$folder/orders" &
exec 3> "$folder/orders"

placed=0
while $open; do
    echo "customer-$((placed % 7))|{\"order\": $placed}" >&3
    placed=$((placed + 1))
    sleep 0.01
done
exec 3>&-  # kcat sends what is left, and ends
wait $!
echo "$placed"
