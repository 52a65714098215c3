#!/usr/bin/env bash
# Proves without a container engine that the image's scripts do what Testcontainers' modules expect: lays them out under a
# temporary root, runs each module's start script there, waits for the log line it waits for, and reads a record back.
#
#   packaging/check-testcontainers.sh [PATH OF riverlog]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
riverlog=$(realpath "${1:-$here/../target/debug/riverlog}")
root=$(mktemp -d)
pid=
finish() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$root"
}
trap finish EXIT

mkdir -p "$root/usr/bin" "$root/etc/kafka/docker" "$root/etc/confluent/docker"
cp "$here/container/start" "$root/usr/bin/riverlog-start"
cp "$here/container/kafka-storage" "$root/usr/bin/"
cp "$here"/container/kafka/* "$root/etc/kafka/docker/"
cp "$here"/container/confluent/* "$root/etc/confluent/docker/"
ln -s "$riverlog" "$root/usr/bin/riverlog"
chmod +x "$root"/usr/bin/* "$root"/etc/*/docker/*
export PATH="$root/usr/bin:$PATH"

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# check NAME LOG-LINE START-SCRIPT: the script's paths are those within the image.
check() {
    local name=$1 line=$2 script=$3
    local outside inside controller http log=$root/$name.log
    outside=$(free_port) inside=$(free_port) controller=$(free_port) http=$(free_port)
    printf '%s\n' "$script" | sed -e "s#/etc/#$root/etc/#g" -e "s#@OUTSIDE@#$outside#g" -e "s#@INSIDE@#$inside#g" > "$root/$name.sh"
    chmod +x "$root/$name.sh"
    env RIVERLOG_DATA="$root/$name.data" RIVERLOG_HTTP="127.0.0.1:$http" \
        CLUSTER_ID=4L6g3nShT-eMCtK--X86sw \
        KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:$outside,BROKER://0.0.0.0:$inside,CONTROLLER://0.0.0.0:$controller" \
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT \
        KAFKA_INTER_BROKER_LISTENER_NAME=BROKER KAFKA_PROCESS_ROLES=broker,controller \
        KAFKA_NODE_ID=1 KAFKA_BROKER_ID=1 KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER \
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:$controller" \
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=1 \
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1 KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1 \
        KAFKA_LOG_FLUSH_INTERVAL_MESSAGES=9223372036854775807 KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 \
        KAFKA_REST_BOOTSTRAP_SERVERS="BROKER://localhost:$inside" \
        "$root/$name.sh" > "$log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        grep -Eq "$line" "$log" && break
        kill -0 "$pid" 2>/dev/null || { echo "$name: it ended" >&2; cat "$log" >&2; exit 1; }
        sleep 0.1
    done
    grep -Eq "$line" "$log" || { echo "$name: the line $line never came" >&2; cat "$log" >&2; exit 1; }
    for at in "127.0.0.1:$outside" "127.0.0.1:$inside"; do
        riverlog -b "$at" doctor connect > "$root/hops" || { echo "$name: $at" >&2; cat "$root/hops" "$log" >&2; exit 1; }
    done
    echo "from $name" | riverlog -b "127.0.0.1:$outside" -q produce hello
    [ "$(riverlog -b "127.0.0.1:$outside" consume hello -e)" = "from $name" ]
    kill "$pid"
    wait "$pid"
    pid=
    echo "$name: ok"
}

kraft_script='#!/bin/bash
source /etc/confluent/docker/bash-config
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:@OUTSIDE@,BROKER://127.0.0.1:@INSIDE@
sed -i "/KAFKA_ZOOKEEPER_CONNECT/d" /etc/confluent/docker/configure
echo '"'"'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" -c /etc/kafka/kafka.properties'"'"' >> /etc/confluent/docker/configure
echo "" > /etc/confluent/docker/ensure
/etc/confluent/docker/configure
exec /etc/confluent/docker/launch'

check java-apache '.*Transitioning from RECOVERY to RUNNING.*' '#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:@OUTSIDE@,BROKER://127.0.0.1:@INSIDE@
exec /etc/kafka/docker/run'
check java-confluent '.*Transitioning from RECOVERY to RUNNING.*' '#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:@OUTSIDE@,BROKER://127.0.0.1:@INSIDE@
exec /etc/confluent/docker/run'
check go '.*Transitioning from RECOVERY to RUNNING.*' "$kraft_script"
check python '.*Kafka Server started.*' "$kraft_script"
check python-zookeeper '.*\[KafkaServer id=[0-9]+\] started.*' "$kraft_script"
