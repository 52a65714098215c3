#!/usr/bin/env bash
# The cases with kcat: cases.sh BOOTSTRAP PREFIX; see ../README.md. kcat has no administration: topics come by
# being written to, and three cases are skipped.
set -euo pipefail
bootstrap=$1 prefix=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

kcat() { timeout -k 2 15 kcat -b "$bootstrap" -m 10 "$@"; }
# read_ TOPIC ARGUMENT…: partition 0 up to its end, without the half second that a fetch at the end waits.
read_() { kcat -C -q -e -X fetch.wait.max.ms=20 -p 0 -t "$@"; }

# case_ NAME FUNCTION…: runs it in a shell of its own, which the first failing command ends.
case_() {
  local name=$1 status
  shift
  # Not as the condition of an `if`: bash would switch -e off in there.
  set +e
  (set -e; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT; "$@") >"$name.out" 2>&1
  status=$?
  set -e
  if [ $status = 0 ]; then
    echo "PASS $name"
  else
    echo "FAIL $name $(tail -n 3 "$name.out" | tr '\n' ' ' | cut -c1-300)"
  fi
}

same() {
  cmp -s "$1" "$2" || { echo "expected $(head -c 80 "$2" | tr '\n' ' ')… got $(head -c 80 "$1" | tr '\n' ' ')…"; return 1; }
}

create_topic() {
  echo x | kcat -P -t "$prefix-t" -p 0
  kcat -L -t "$prefix-t" | grep -q "topic \"$prefix-t\" with 1 partitions"
}

codec() {
  local topic=$prefix-$1
  for n in $(seq 50); do echo "key-$n:value $n $n $n $n $n $n $n $n"; done >sent
  kcat -P -t "$topic" -p 0 -z "$1" -K: -H trace=a:b -H empty= -X acks=all sent -l
  read_ "$topic" -o beginning -f '%k:%s\n' >got
  same got sent
  read_ "$topic" -o beginning -c 1 -f '%h\n' | grep -qx 'trace=a:b,empty='
  # An empty value with -Z is null: kcat shows its length as -1.
  echo 'gone:' | kcat -P -t "$topic" -p 0 -z "$1" -K: -Z
  [ "$(read_ "$topic" -o -1 -f '%k %S')" = 'gone -1' ]
}

idempotent() {
  seq 200 >sent
  kcat -P -t "$prefix-idempotent" -p 0 -X enable.idempotence=true -X batch.num.messages=10 sent -l
  read_ "$prefix-idempotent" -o beginning >got
  same got sent
}

# member FILE &: a member of the group until it is killed; its records go to FILE.
member() {
  exec kcat -b "$bootstrap" -u -G "$prefix-group" -X auto.offset.reset=earliest -X session.timeout.ms=6000 \
    -X auto.commit.interval.ms=100 -X heartbeat.interval.ms=300 -X topic.metadata.refresh.interval.ms=1000 -f '%p %s\n' "$prefix-a" "$prefix-b" \
    >"$1" 2>"$1.err"
}

# until_ COMMAND…: waits up to 15 s until it succeeds.
until_() {
  for _ in $(seq 150); do "$@" && return; sleep 0.1; done
  echo "not within 15 s: $*"
  return 1
}

lines() { [ "$(cat "${@:2}" | wc -l)" -ge "$1" ]; }
assigned() { [ "$(grep -c ' assigned' "$2.err")" -ge "$1" ]; }

# Two topics of one partition stand for the four partitions of the other clients.
group_rebalance() {
  for t in a b; do kcat -P -t "$prefix-$t" -p 0 </dev/null; echo first | kcat -P -t "$prefix-$t" -p 0; done
  member one & local one=$!
  until_ lines 2 one
  member two & local two=$!
  until_ assigned 1 two
  until_ assigned 2 one
  for t in a b; do seq 20 | kcat -P -t "$prefix-$t" -p 0; done
  until_ lines 42 one two
  [ "$(grep -c -v first one)" = 20 ] && [ "$(grep -c -v first two)" = 20 ]
  sleep 0.5
  kill "$two"; wait "$two" || true
  echo last | kcat -P -t "$prefix-a" -p 0
  echo last | kcat -P -t "$prefix-b" -p 0
  until_ eval '[ "$(grep -c last one)" = 2 ]'
  sleep 0.5
  kill "$one"; wait "$one" || true
}

group_resumes() {
  echo new | kcat -P -t "$prefix-a" -p 0
  member three & local three=$!
  until_ lines 1 three
  kill "$three"; wait "$three" || true
  [ "$(cat three)" = '0 new' ]
}

offsets_by_time() {
  local topic=$prefix-time before
  echo a | kcat -P -t "$topic" -p 0
  sleep 0.1; before=$(date +%s%3N); sleep 0.1
  echo b | kcat -P -t "$topic" -p 0
  kcat -Q -t "$topic:0:$before" | grep -q 'offset 1$'
  kcat -Q -t "$topic:0:-1" | grep -q 'offset 2$'
  kcat -Q -t "$topic:0:-2" | grep -q 'offset 0$'
  [ "$(read_ "$topic" -o "s@$before")" = b ]
}

case_ create-topic create_topic
for name in none gzip snappy lz4 zstd; do case_ "codec-$name" codec "$name"; done
case_ idempotent idempotent
case_ group-rebalance group_rebalance
case_ group-resumes group_resumes
case_ offsets-by-time offsets_by_time
echo "SKIP transactions kcat writes no transactions"
echo "SKIP transaction-offsets kcat writes no transactions"
echo "SKIP compaction kcat makes no topics with settings"
echo "SKIP group-kip848 kcat speaks the classic protocol only"
echo "SKIP group-migration kcat speaks the classic protocol only"
echo "SKIP group-migration-cooperative kcat speaks the classic protocol only"
echo "SKIP share-group kcat has no share groups"
echo "SKIP share-dead-letters kcat has no share groups"
echo "SKIP groups-listed kcat can't list groups"
echo "SKIP delete-topic kcat can't delete topics"
