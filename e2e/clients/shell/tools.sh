#!/usr/bin/env bash
# Kafka's own command-line tools in the matrix of clients, each by its main class; contract.sh has the frame.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=contract.sh
. "$here/contract.sh"

jvm=(java -Xmx256M -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile="$here/../../kafka/log4j2.yaml"
  -cp "$TAFFRAIL_KAFKA_LIBS/*")

on() { # CLASS ARGUMENT...
  local class=$1
  shift
  "${jvm[@]}" "org.apache.kafka.tools.$class" --bootstrap-server "$bootstrap" "$@"
}

topic() { on TopicCommand "$@"; }
send() { # TOPIC CODEC, lines from standard input
  on ConsoleProducer --topic "$1" --compression-codec "$2" --command-property acks=all --reader-property parse.key=true \
    --reader-property key.separator=:
}
offsets() { # TOPIC TIME: `partition offset`, one a line
  on GetOffsetShell --topic "$1" --time "$2" | awk -F: '{print $2, $3}'
}

do_create() {
  topic --create --topic "$data" --partitions $partitions --replication-factor 3 >&2
  topic --describe --topic "$data" | grep -q "PartitionCount: $partitions"
  basename "$TAFFRAIL_KAFKA_LIBS"/kafka-tools-[0-9]*.jar .jar
}

do_produce() {
  local codecs=(none gzip snappy lz4 zstd) index
  for index in 0 1 2 3 4; do lines $((index * 60)) 60 | send "$data" "${codecs[$index]}" >&2; done
  echo "${codecs[*]}"
}

do_assign() {
  local partition count
  : >assigned
  while read -r partition count; do
    [ "$count" = 0 ] && continue
    on consumer.ConsoleConsumer --topic "$data" --partition "$partition" --offset earliest --max-messages "$count" --timeout-ms 30000 \
      </dev/null >>assigned
  done < <(offsets "$data" latest)
  sort assigned | cmp - <(values 0 $records) >&2 || fail "not the records that were sent"
}

join() {
  # Not by a function, whose process would get the signal that ends the member.
  "${jvm[@]}" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$bootstrap" --topic "$data" --group "$group" \
    --from-beginning --command-property heartbeat.interval.ms=500 >"$1.out" 2>"$1.err" </dev/null &
}
# members: how many partitions each member has, one a line.
members() {
  on consumer.group.ConsumerGroupCommand --describe --members --group "$group" 2>/dev/null |
    awk -v group="$group" '$1 == group {print $NF}' | sort
}
members_are() { [ "$(members | tr '\n' ' ')" = "$1" ]; }
read_all() { [ "$(cat a.out b.out 2>/dev/null | sort -u | wc -l)" -ge $records ]; }

do_group() {
  first="" second=""
  trap 'kill $first $second 2>/dev/null || true' EXIT
  join a
  first=$!
  until_true "all partitions" members_are "3 "
  join b
  second=$!
  until_true "two members to share" members_are "1 2 "
  kill -TERM $second
  wait $second || true
  until_true "all partitions again" members_are "3 "
  until_true "all records" read_all
  kill -TERM $first
  wait $first || true
  values 0 $records | cmp - <(cat a.out b.out | sort -u) >&2 || fail "not the records that were sent"
  echo "3, 2+1, 3 partitions"
}

do_resume() {
  lines $records $more | send "$data" none >&2
  on consumer.ConsoleConsumer --topic "$data" --group "$group" --from-beginning --max-messages $more --timeout-ms 30000 </dev/null |
    sort >resumed
  values $records $more | cmp - resumed >&2 || fail "$(wc -l <resumed) records, not those after the commit"
}

do_topics() {
  topic --create --topic "$admin" --partitions 1 --replication-factor 3 >&2
  topic --list | grep -qx "$admin"
  # While it has one partition, for delete-records.
  lines 0 20 | send "$admin" none >&2
}

do_configs() {
  on ConfigCommand --alter --entity-type topics --entity-name "$admin" --add-config retention.ms=$retention >&2
  on ConfigCommand --describe --entity-type topics --entity-name "$admin" | grep -q "retention.ms=$retention"
}

do_partitions() {
  topic --alter --topic "$admin" --partitions 4 >&2
  topic --describe --topic "$admin" | grep -q 'PartitionCount: 4'
}

do_delete-records() {
  echo '{"version":1,"partitions":[{"topic":"'"$admin"'","partition":0,"offset":5}]}' >deleted.json
  on DeleteRecordsCommand --offset-json-file deleted.json >&2
  offsets "$admin" earliest | grep -qx '0 5'
}

do_delete-topic() {
  topic --create --topic "$gone" --partitions 1 --replication-factor 3 >&2
  topic --delete --topic "$gone" >&2
  ! topic --list | grep -qx "$gone"
}

do_groups() {
  on consumer.group.ConsumerGroupCommand --list | grep -qx "$group"
  on consumer.group.ConsumerGroupCommand --describe --state --group "$group" | grep -oi -m1 -w empty | tr '[:upper:]' '[:lower:]'
}

do_transactions() {
  local said
  if ! said=$(timeout 20 "${jvm[@]}" org.apache.kafka.tools.TransactionsCommand \
    --bootstrap-server "$bootstrap" list 2>&1); then
    said=$(grep -m1 -E 'support|Unsupported' <<<"$said") && refuse "$said"
    fail "no clear word from kafka-transactions list"
  fi
}

do_kip848() {
  local said
  said=$(on consumer.ConsoleConsumer --topic "$data" --group "$group-848" --from-beginning --max-messages 1 --timeout-ms 15000 \
    --command-property group.protocol=consumer </dev/null 2>&1 >/dev/null) && [ -z "$said" ] && return
  said=$(grep -m1 -i 'support' <<<"$said") && refuse "$said"
  fail "no clear word"
}

do_reassign() {
  local replicas
  replicas=$(topic --describe --topic "$admin" | awk '/Partition: 1\t/ {for (i = 1; i < NF; i++) if ($i == "Replicas:") print $(i + 1)}')
  # The same replicas, another first one.
  replicas=${replicas#*,},${replicas%%,*}
  echo '{"version":1,"partitions":[{"topic":"'"$admin"'","partition":1,"replicas":['"$replicas"']}]}' >moved.json
  on reassign.ReassignPartitionsCommand --execute --reassignment-json-file moved.json >&2
  until_true "the reassignment" verified
  topic --describe --topic "$admin" | grep -q "Replicas: $replicas"
}
verified() {
  on reassign.ReassignPartitionsCommand --verify --reassignment-json-file moved.json | grep -q 'is completed'
}

# After the reassignment another broker should lead.
do_elect() {
  on LeaderElectionCommand --election-type preferred --topic "$admin" --partition 1
  topic --describe --topic "$admin" | grep -qP 'Partition: 1\tLeader: (\d+)\tReplicas: \1,'
}

do_log-dirs() {
  on LogDirsCommand --describe --topic-list "$data" | grep -q "\"partition\":\"$data-0\""
}

do_quorum() {
  on MetadataQuorumCommand describe --status | grep '^CurrentVoters'
  on MetadataQuorumCommand describe --replication | grep -q Leader
}

do_perf() {
  topic --create --topic "$prefix-perf" --partitions 3 --replication-factor 3 >&2
  on ProducerPerformance --topic "$prefix-perf" --num-records 2000 --record-size 100 --throughput -1 --command-property acks=all |
    grep -q '^2000 records sent'
  on ConsumerPerformance --topic "$prefix-perf" --num-records 2000 --timeout 30000 | grep -q '2000'
}

do_verifiable() {
  on VerifiableProducer --topic "$prefix-verifiable" --max-messages 500 --acks -1 | grep -q '"sent":500,"acked":500'
  on VerifiableConsumer --topic "$prefix-verifiable" --group-id "$prefix-verifiable" --max-messages 500 --reset-policy earliest |
    grep -q '"name":"offsets_committed".*"success":true'
}

run_steps
