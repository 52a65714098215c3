#!/usr/bin/env bash
# The cases with Kafka's own command-line tools: cases.sh JARS LOGGING BOOTSTRAP PREFIX; see ../README.md. Each tool is a
# process of its own, as people run them.
set -euo pipefail
jars=$1 logging=$2 bootstrap=$3 prefix=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# java_ CLASS ARGUMENT…
java_() {
  local class=$1
  shift
  timeout -k 2 60 java -XX:TieredStopAtLevel=1 -Xshare:auto -Xmx128M -Dlog4j2.configurationFile="$logging" -cp "$jars/*" \
    "org.apache.kafka.tools.$class" "$@"
}
# tool CLASS ARGUMENT…
tool() { java_ "$1" --bootstrap-server "$bootstrap" "${@:2}"; }
topics() { tool TopicCommand "$@"; }
groups_() { tool consumer.group.ConsumerGroupCommand "$@"; }
# consume ARGUMENT…: at most that long, so that a record that is missing ends the case.
consume() { tool consumer.ConsoleConsumer --timeout-ms 20000 "$@" 2>consume.err; }

# case_ NAME FUNCTION: runs it in a shell of its own, which the first failing command ends.
case_() {
  local name=$1 status
  shift
  set +e
  (set -e; "$@") >"$name.out" 2>&1
  status=$?
  set -e
  if [ $status = 0 ]; then
    echo "PASS $name"
  else
    echo "FAIL $name $(grep -v '^[[:space:]]*at ' "$name.out" | tail -n 3 | tr '\n' ' ' | cut -c1-300)"
  fi
}

# not COMMAND…: what must fail. After a plain `!` bash would go on.
not() { if "$@"; then echo "succeeded: $*"; return 1; fi; }

# has FILE WORDS…: a line of the file has these columns, in this order and with nothing between them.
has() {
  local file=$1 pattern
  shift
  pattern=$(printf '%s[[:space:]]+' "$@")
  tr -s '\t ' ' ' <"$file" | sed 's/$/ /' | grep -Eq "(^| )${pattern%\[\[:space:\]\]+} " && return
  echo "no line with: $*; but: $(head -c 200 "$file" | tr '\n' ' ')"
  return 1
}

topics_case() {
  topics --create --topic "$prefix-t" --partitions 3 --config retention.ms=3600000
  topics --describe --topic "$prefix-t" >described
  grep -q 'PartitionCount: 3' described
  grep -q 'retention.ms=3600000' described
  topics --alter --topic "$prefix-t" --partitions 4
  topics --list >listed
  grep -qx "$prefix-t" listed
  # What is there is refused, and said.
  not topics --create --topic "$prefix-t" >again 2>&1
  grep -qi 'already exists' again
}

records() {
  for n in 1 2 3 4 5; do echo "key-$n:value $n"; done >sent
  tool ConsoleProducer --topic "$prefix-t" --reader-property parse.key=true --reader-property key.separator=: <sent
  consume --topic "$prefix-t" --from-beginning --max-messages 5 --formatter-property print.key=true \
    --formatter-property key.separator=: | sort >got
  cmp got sent
  tool GetOffsetShell --topic "$prefix-t" --time -1 >ends
  [ "$(awk -F: '{sum += $3} END {print sum}' ends)" = 5 ]
}

group() {
  consume --topic "$prefix-t" --group "$prefix-g" --from-beginning --max-messages 5 | sort >read
  [ "$(wc -l <read)" = 5 ]
  groups_ --describe --group "$prefix-g" >described
  [ "$(awk -v t="$prefix-t" '$2 == t {lag += $6} END {print lag + 0}' described)" = 0 ]
  groups_ --describe --group "$prefix-g" --state >state
  grep -q Empty state
  groups_ --reset-offsets --to-earliest --topic "$prefix-t" --group "$prefix-g" --dry-run >planned
  groups_ --reset-offsets --to-earliest --topic "$prefix-t" --group "$prefix-g" --execute >moved
  groups_ --describe --group "$prefix-g" >described
  [ "$(awk -v t="$prefix-t" '$2 == t {lag += $6} END {print lag + 0}' described)" = 5 ]
  groups_ --list >listed
  grep -qx "$prefix-g" listed
  groups_ --delete --group "$prefix-g" >deleted
  grep -q successful deleted
}

configs() {
  tool ConfigCommand --alter --entity-type topics --entity-name "$prefix-t" --add-config max.message.bytes=2000000
  tool ConfigCommand --describe --entity-type topics --entity-name "$prefix-t" >described
  grep -q 'max.message.bytes=2000000' described
  tool ConfigCommand --alter --entity-type topics --entity-name "$prefix-t" --delete-config max.message.bytes
  tool ConfigCommand --describe --entity-type topics --entity-name "$prefix-t" >described
  not grep -q 'max.message.bytes=2000000' described
}

transactions() {
  tool ProducerPerformance --topic "$prefix-t" --num-records 20 --record-size 10 --throughput -1 \
    --transactional-id "$prefix-x" --transaction-duration-ms 100 >sent
  consume --topic "$prefix-t" --isolation-level read_committed --from-beginning --max-messages 25 >read
  [ "$(wc -l <read)" = 25 ]
  tool TransactionsCommand list >listed
  has listed "$prefix-x" '[0-9]+' '[0-9]+' CompleteCommit
  tool TransactionsCommand describe --transactional-id "$prefix-x" >described
  grep -q CompleteCommit described
  tool TransactionsCommand describe-producers --topic "$prefix-t" --partition 0 >producers
  grep -q ProducerId producers
}

delete_records() {
  echo "{\"partitions\":[{\"topic\":\"$prefix-t\",\"partition\":0,\"offset\":-1}],\"version\":1}" >delete.json
  tool DeleteRecordsCommand --offset-json-file delete.json >deleted
  tool GetOffsetShell --topic-partitions "$prefix-t:0" --time -1 >end
  tool GetOffsetShell --topic-partitions "$prefix-t:0" --time -2 >start
  cmp start end
}

cluster() {
  tool BrokerApiVersionsCommand >versions
  grep -q 'Produce(0): 0 to 13' versions
  java_ ClusterTool cluster-id --bootstrap-server "$bootstrap" >id
  grep -q 'Cluster ID: ' id
}

delete_topic() {
  topics --delete --topic "$prefix-t"
  topics --list >listed
  not grep -qx "$prefix-t" listed
}

case_ topics topics_case
case_ records records
case_ group group
case_ configs configs
case_ transactions transactions
case_ delete-records delete_records
case_ cluster cluster
case_ delete-topic delete_topic
