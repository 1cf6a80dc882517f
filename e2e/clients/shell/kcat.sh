#!/usr/bin/env bash
# kcat (librdkafka in C) in the matrix of clients; contract.sh has the frame. It has no admin calls: its topic is made by Kafka's tool.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=contract.sh
. "$here/contract.sh"

do_create() {
  java -Xmx128M -XX:TieredStopAtLevel=1 -cp "$TAFFRAIL_KAFKA_LIBS/*" org.apache.kafka.tools.TopicCommand --bootstrap-server "$bootstrap" \
    --create --topic "$data" --partitions $partitions --replication-factor 3 >&2
  kcat -L -b "$bootstrap" -t "$data" | grep -q "with $partitions partitions"
  absent "kcat $(kcat -V | grep -o 'librdkafka [0-9.]*'); made by Kafka's tool, seen by kcat"
}

# send FIRST COUNT CODEC: each record to the partition of its number.
send() {
  local partition
  for ((partition = 0; partition < partitions; partition++)); do
    lines "$1" "$2" | awk -v p=$partition "NR % $partitions == (p + 1) % $partitions" |
      kcat -P -b "$bootstrap" -t "$data" -p $partition -K: -z "$3" -X acks=all -X enable.idempotence=true
  done
}

do_produce() {
  local codecs=(none gzip snappy lz4 zstd) index
  for index in 0 1 2 3 4; do send $((index * 60)) 60 "${codecs[$index]}"; done
  echo "${codecs[*]}"
}

do_assign() {
  local partition
  for ((partition = 0; partition < partitions; partition++)); do
    kcat -C -b "$bootstrap" -t "$data" -p $partition -o beginning -e -q -f '%s\n' >"part-$partition"
    lines 0 $records | cut -d: -f2 | awk -v p=$partition "NR % $partitions == (p + 1) % $partitions" | cmp - "part-$partition" >&2 ||
      fail "partition $partition is not as it was sent"
  done
}

# join NAME: a member that prints values to NAME.out and rebalances to NAME.err.
join() {
  kcat -b "$bootstrap" -G "$group" -X auto.offset.reset=earliest -u -f '%s\n' "$data" >"$1.out" 2>"$1.err" </dev/null &
}
# shares NAME: how many partitions the member has.
shares() {
  local last
  last=$(grep rebalanced "$1.err" | tail -1)
  case $last in *assigned:*) grep -o "$data \[" <<<"$last" | wc -l ;; *) echo 0 ;; esac
}
has() { [ "$(shares "$1")" = "$2" ]; }
shared() {
  local a b
  a=$(shares a)
  b=$(shares b)
  [ "$a" -gt 0 ] && [ "$b" -gt 0 ] && [ $((a + b)) = $partitions ]
}
read_all() { [ "$(cat a.out b.out | sort -u | wc -l)" -ge $records ]; }

do_group() {
  first="" second=""
  trap 'kill $first $second 2>/dev/null || true' EXIT
  join a
  first=$!
  until_true "all partitions" has a $partitions
  join b
  second=$!
  until_true "two members to share" shared
  kill -TERM $second
  wait $second || true
  until_true "all partitions again" has a $partitions
  until_true "all records" read_all
  kill -TERM $first
  wait $first || true
  values 0 $records | cmp - <(cat a.out b.out | sort -u) >&2 || fail "not the records that were sent"
  echo "3, 2+1, 3 partitions"
}

do_resume() {
  send $records $more none
  timeout $limit kcat -b "$bootstrap" -G "$group" -X auto.offset.reset=earliest -q -c $more -f '%s\n' "$data" </dev/null | sort >resumed
  values $records $more | cmp - resumed >&2 || fail "$(wc -l <resumed) records, not those after the commit"
}

do_transactions() {
  local said
  if ! said=$(echo "in a transaction" | timeout 15 kcat -P -b "$bootstrap" -t "$data" -X transactional.id="$prefix" 2>&1); then
    fail "nothing within 15 s: $(tail -1 <<<"$said")"
  fi
}

run_steps
