import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The cases with Kafka's own Java client: Cases.java BOOTSTRAP PREFIX; see ../README.md. */
public class Cases {
    static final int CASE_LIMIT_S = 20;
    static final long EPOCH_MS = 1_700_000_000_000L;
    static final long STEP_MS = 60_000;

    static String bootstrap;
    static String prefix;
    static String topic;
    static String groupTopic;
    static String group;
    static Admin admin;

    interface Case {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** Arrays don't compare by content; this does. */
    record Seen(String key, String value, List<String> headers) {}

    public static void main(String[] args) {
        bootstrap = args[0];
        prefix = args[1];
        topic = prefix + "-t";
        groupTopic = prefix + "-g";
        group = prefix + "-group";
        admin = Admin.create(settings());
        report("create-topic", Cases::createTopic);
        for (String name : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            report("codec-" + name, () -> codec(name));
        }
        report("idempotent", Cases::idempotent);
        report("transactions", Cases::transactions);
        report("transaction-offsets", Cases::transactionOffsets);
        report("compaction", Cases::compaction);
        report("group-rebalance", () -> rebalance(CLASSIC));
        report("group-resumes", () -> {
            resumes(CLASSIC);
            appear(CLASSIC);
        });
        report("group-kip848", () -> {
            rebalance(CONSUMER);
            resumes(CONSUMER);
            appear(CONSUMER);
        });
        report("group-migration", () -> moves("-moves"));
        report("group-migration-cooperative", () -> moves(
            "-moves-coop", "partition.assignment.strategy", CooperativeStickyAssignor.class.getName()));
        report("share-group", Cases::shareGroup);
        report("share-dead-letters", Cases::deadLetters);
        report("offsets-by-time", Cases::offsetsByTime);
        report("groups-listed", Cases::groupsListed);
        report("delete-topic", Cases::deleteTopic);
        // Whatever still waits ends with the process.
        Runtime.getRuntime().halt(0);
    }

    static final ExecutorService RUNNER = Executors.newCachedThreadPool();

    static void report(String name, Case run) {
        Future<?> done = RUNNER.submit(() -> {
            run.run();
            return null;
        });
        try {
            done.get(CASE_LIMIT_S, TimeUnit.SECONDS);
            System.out.println("PASS " + name);
        } catch (TimeoutException e) {
            System.out.println("FAIL " + name + " not done after " + CASE_LIMIT_S + " s");
        } catch (InterruptedException | ExecutionException e) {
            String text = String.valueOf(e.getCause()).replaceAll("\\s+", " ");
            System.out.println("FAIL " + name + " " + text.substring(0, Math.min(300, text.length())));
        }
    }

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) {
            String text = String.format("%s: expected %.150s, got %.150s", what, expected, got);
            throw new AssertionError(text);
        }
    }

    static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        while (!condition.holds()) {
            if (System.nanoTime() > end) {
                throw new AssertionError(what + ": not within 15 s");
            }
            Thread.sleep(10);
        }
    }

    static Properties settings(String... more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            p.put(more[i], more[i + 1]);
        }
        return p;
    }

    static void create(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) -1))).all().get();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void produce(List<ProducerRecord<byte[], byte[]>> records, String... more) throws Exception {
        Properties p = settings(more);
        p.putIfAbsent("linger.ms", "20");
        try (var producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (var record : records) {
                sent.add(producer.send(record));
            }
            for (var one : sent) {
                one.get();
            }
        }
    }

    static ProducerRecord<byte[], byte[]> numbered(String name, int partition, Long timestamp, int n) {
        return new ProducerRecord<>(name, partition, timestamp, bytes("k"), bytes(String.valueOf(n)));
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... more) {
        Properties p = settings(more);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        return found;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String name, int count, long offset) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (var consumer = consumer()) {
            TopicPartition partition = new TopicPartition(name, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            until(count + " records", () -> {
                found.addAll(poll(consumer));
                return found.size() >= count;
            });
        }
        return found;
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    static Seen seen(byte[] key, byte[] value, Iterable<Header> headers) {
        List<String> list = new ArrayList<>();
        headers.forEach(h -> list.add(h.key() + "=" + text(h.value())));
        return new Seen(text(key), text(value), list);
    }

    static void createTopic() throws Exception {
        create(topic, 3);
        var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        same(described.partitions().size(), 3, "partitions");
    }

    static void codec(String name) throws Exception {
        String where = prefix + "-" + name;
        create(where, 1);
        List<Header> headers = List.of(
            new RecordHeader("trace", new byte[] {0, 1, (byte) 255}), new RecordHeader("empty", new byte[0]));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 50; n++) {
            byte[] value = bytes(("value " + n + " ").repeat(20));
            records.add(new ProducerRecord<>(where, 0, bytes("key-" + n), value, headers));
        }
        records.add(new ProducerRecord<>(where, 0, bytes("gone"), null));
        records.add(new ProducerRecord<>(where, 0, null, null, bytes("no key"), headers.subList(0, 1)));
        produce(records, "compression.type", name);
        Stream<Seen> expected = records.stream().map(r -> seen(r.key(), r.value(), r.headers()));
        Stream<Seen> got = read(where, records.size(), 0).stream().map(r -> seen(r.key(), r.value(), r.headers()));
        same(got.toList(), expected.toList(), "records");
    }

    static void idempotent() throws Exception {
        String where = prefix + "-idempotent";
        create(where, 1);
        var records = IntStream.range(0, 200).mapToObj(n -> numbered(where, 0, null, n)).toList();
        produce(records, "enable.idempotence", "true", "batch.size", "512");
        List<String> got = read(where, 200, 0).stream().map(r -> r.offset() + "=" + text(r.value())).toList();
        same(got, IntStream.range(0, 200).mapToObj(n -> n + "=" + n).toList(), "records");
    }

    static KafkaProducer<byte[], byte[]> transactional(String id) {
        var settings = settings("transactional.id", id, "key.serializer", ByteArraySerializer.class.getName(),
            "value.serializer", ByteArraySerializer.class.getName());
        var producer = new KafkaProducer<byte[], byte[]>(settings);
        producer.initTransactions();
        return producer;
    }

    static void transactions() throws Exception {
        String where = prefix + "-txn";
        create(where, 1);
        List<String> expected = new ArrayList<>();
        var producer = transactional(where);
        for (int n = 0; n < 3; n++) {
            producer.beginTransaction();
            for (int i = 0; i < 3; i++) {
                producer.send(numbered(where, 0, null, 3 * n + i)).get();
            }
            if (n == 1) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
                IntStream.range(3 * n, 3 * n + 3).forEach(i -> expected.add(String.valueOf(i)));
            }
        }
        // A new instance aborts what the old one has open, and fences it.
        producer.beginTransaction();
        producer.send(numbered(where, 0, null, 100)).get();
        var newer = transactional(where);
        boolean fenced = false;
        try {
            producer.commitTransaction();
        } catch (KafkaException e) {
            fenced = true;
        }
        same(fenced, true, "the old instance is fenced");
        newer.beginTransaction();
        newer.send(numbered(where, 0, null, 9)).get();
        newer.commitTransaction();
        newer.close();
        expected.add("9");
        same(committed(where, expected.size()), expected, "records");
    }

    static List<String> committed(String name, int count) throws Exception {
        List<String> got = new ArrayList<>();
        try (var reader = consumer("isolation.level", "read_committed")) {
            var place = new TopicPartition(name, 0);
            reader.assign(List.of(place));
            reader.seek(place, 0);
            until("committed records", () -> {
                reader.poll(Duration.ofMillis(200)).forEach(r -> got.add(text(r.value())));
                return got.size() >= count;
            });
        }
        return got;
    }

    static void transactionOffsets() throws Exception {
        String source = prefix + "-txn-in";
        String target = prefix + "-txn-out";
        create(source, 1);
        create(target, 1);
        produce(IntStream.range(0, 4).mapToObj(n -> numbered(source, 0, null, n)).toList());
        var place = new TopicPartition(source, 0);
        try (var producer = transactional(prefix + "-txn-copy");
                var reader = consumer("group.id", prefix + "-txn-group", "max.poll.records", "2")) {
            reader.subscribe(List.of(source));
            same(copied(producer, reader, target, place, true), 2L, "committed with the transaction");
            same(copied(producer, reader, target, place, false), 2L, "not committed by an aborted one");
            reader.seek(place, 2);
            same(copied(producer, reader, target, place, true), 4L, "committed by the next");
        }
        same(committed(target, 4), List.of("0", "1", "2", "3"), "each record once");
    }

    /** Copies two records in a transaction that is kept or given up; the committed offset after that. */
    static long copied(
            KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> reader, String target,
            TopicPartition place, boolean kept) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        until("two records", () -> {
            records.addAll(poll(reader));
            return records.size() >= 2;
        });
        producer.beginTransaction();
        for (var record : records) {
            producer.send(new ProducerRecord<>(target, 0, bytes("k"), record.value()));
        }
        var at = Map.of(place, new OffsetAndMetadata(reader.position(place)));
        producer.sendOffsetsToTransaction(at, reader.groupMetadata());
        if (kept) {
            producer.commitTransaction();
        } else {
            producer.flush();
            producer.abortTransaction();
        }
        return reader.committed(Set.of(place)).get(place).offset();
    }

    static void compaction() throws Exception {
        String where = prefix + "-compact";
        var settings = Map.of("cleanup.policy", "compact", "segment.ms", "50", "min.cleanable.dirty.ratio", "0.01");
        admin.createTopics(List.of(new NewTopic(where, 1, (short) -1).configs(settings))).all().get();
        // One round a segment.
        for (String round : List.of("a=0 b=0 c=0", "a=1 b=1", "a=2", "c", "end=0")) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (String one : round.split(" ")) {
                String[] both = one.split("=");
                byte[] value = both.length > 1 ? bytes(both[1]) : null;
                records.add(new ProducerRecord<>(where, 0, bytes(both[0]), value));
            }
            produce(records);
            Thread.sleep(100);
        }
        var kept = List.of("4:b=1", "5:a=2", "6:c=null", "7:end=0");
        until("only the newest of each key", () -> read(where, kept.size(), 0).stream()
            .map(r -> r.offset() + ":" + text(r.key()) + "=" + text(r.value())).toList().equals(kept));
        tombstone();
    }

    /** A deleted key: who reads from the start sees its tombstone, later nothing of it, and never what it deleted. */
    static void tombstone() throws Exception {
        String where = prefix + "-tombstone";
        var settings = Map.of("cleanup.policy", "compact", "segment.ms", "50", "min.cleanable.dirty.ratio", "0.01",
            "delete.retention.ms", "1000");
        admin.createTopics(List.of(new NewTopic(where, 1, (short) -1).configs(settings))).all().get();
        produce(List.of(keyed(where, "a", "0"), keyed(where, "b", "0")));
        Thread.sleep(100);
        produce(List.of(keyed(where, "a", null)));
        var before = of(where, "a");
        same(before.get(before.size() - 1), "null", "what a deleted key ends with");
        until("a tombstone that is gone", () -> {
            // Only what is written to is cleaned again.
            produce(List.of(keyed(where, "end", "x")));
            Thread.sleep(100);
            var found = of(where, "a");
            if (!found.isEmpty()) {
                same(found.get(found.size() - 1), "null", "what a deleted key ends with");
            }
            return found.isEmpty();
        });
        same(of(where, "b"), List.of("0"), "what was not deleted");
    }

    static ProducerRecord<byte[], byte[]> keyed(String name, String key, String value) {
        return new ProducerRecord<>(name, 0, bytes(key), value == null ? null : bytes(value));
    }

    /** The values of a key, as a reader finds them on its way from the start to the end. */
    static List<String> of(String name, String key) throws Exception {
        List<String> found = new ArrayList<>();
        try (var consumer = consumer()) {
            TopicPartition partition = new TopicPartition(name, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            until("the end", () -> {
                for (var record : poll(consumer)) {
                    if (text(record.key()).equals(key)) {
                        found.add(String.valueOf(text(record.value())));
                    }
                }
                return consumer.position(partition) >= end;
            });
        }
        return found;
    }

    /** A way to be a group: what its names end with, and settings of its members. */
    record Protocol(String suffix, String... settings) {
        String topic() {
            return groupTopic + suffix;
        }

        KafkaConsumer<byte[], byte[]> member() {
            var more = Stream.concat(Stream.of("group.id", group + suffix), Stream.of(settings));
            var consumer = consumer(more.toArray(String[]::new));
            consumer.subscribe(List.of(topic()));
            return consumer;
        }
    }

    static final Protocol CLASSIC = new Protocol("", "session.timeout.ms", "6000", "heartbeat.interval.ms", "300");

    /** KIP-848: the broker assigns, and says how often to call. */
    static final Protocol CONSUMER = new Protocol("-848", "group.protocol", "consumer");

    static void rebalance(Protocol protocol) throws Exception {
        String where = protocol.topic();
        create(where, 4);
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        var first = protocol.member();
        until("all partitions for the first", () -> spread(got, List.of(first), 4));
        var second = protocol.member();
        var both = List.of(first, second);
        until("two partitions each", () -> spread(got, both, 2, 2));
        produce(IntStream.range(0, 40).mapToObj(n -> numbered(where, n % 4, null, n)).toList());
        until("40 records", () -> spread(got, both, 2, 2) && got.size() >= 40);
        List<Integer> values = got.stream().map(r -> Integer.valueOf(text(r.value()))).sorted().toList();
        same(values, IntStream.range(0, 40).boxed().toList(), "records");
        both.forEach(KafkaConsumer::commitSync);
        second.close();
        until("all partitions back", () -> spread(got, List.of(first), 4));
        first.close();
    }

    /** Polls each member once, and tells whether they have these numbers of partitions. */
    static boolean spread(
            List<ConsumerRecord<byte[], byte[]>> got, List<KafkaConsumer<byte[], byte[]>> members, int... sizes) {
        members.forEach(m -> got.addAll(poll(m)));
        int[] given = members.stream().map(KafkaConsumer::assignment).mapToInt(Collection::size).sorted().toArray();
        return Arrays.equals(given, sizes);
    }

    /** Two members, one after the other started anew with the newer protocol and then with the older again, while records come. */
    static void moves(String suffix, String... more) throws Exception {
        var settings = Stream.concat(Stream.of(CLASSIC.settings()), Stream.of(more));
        var older = new Protocol(suffix, settings.toArray(String[]::new));
        var newer = new Protocol(suffix, CONSUMER.settings());
        create(older.topic(), 4);
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        var members = new ArrayList<>(List.of(older.member(), older.member()));
        arrive(older.topic(), 0, got, members);
        var next = List.of(newer, newer, older, older);
        for (int i = 0; i < next.size(); i++) {
            members.get(i % 2).commitSync();
            members.get(i % 2).close();
            members.set(i % 2, next.get(i).member());
            arrive(older.topic(), 20 * (i + 1), got, members);
        }
        // Who was given a partition without a commit reads again what the one before had read.
        until("all committed", () -> {
            spread(got, members, 2, 2);
            members.forEach(KafkaConsumer::commitSync);
            Set<TopicPartition> all = new HashSet<>();
            members.forEach(member -> all.addAll(member.assignment()));
            var committed = members.get(0).committed(all).values();
            return committed.size() == 4 && committed.stream().allMatch(at -> at != null && at.offset() == 25);
        });
        members.forEach(KafkaConsumer::close);
    }

    /** Twenty more records come, and with them all there are, to members that have two partitions each. */
    static void arrive(
            String where, int from, List<ConsumerRecord<byte[], byte[]>> got, List<KafkaConsumer<byte[], byte[]>> members)
            throws Exception {
        produce(IntStream.range(from, from + 20).mapToObj(n -> numbered(where, n % 4, null, n)).toList());
        until("two partitions each, and " + (from + 20) + " records", () -> spread(got, members, 2, 2)
            && got.stream().map(record -> text(record.value())).distinct().count() == from + 20);
    }

    static void resumes(Protocol protocol) throws Exception {
        produce(List.of(numbered(protocol.topic(), 1, null, 40)));
        try (var consumer = protocol.member()) {
            List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
            until("the new record", () -> got.addAll(poll(consumer)));
            var record = got.get(0);
            same(record.partition() + "@" + record.offset() + "=" + text(record.value()), "1@10=40", "record");
            Set<TopicPartition> all = consumer.assignment();
            var committed = consumer.committed(all).values().stream().map(OffsetAndMetadata::offset).toList();
            same(committed, List.of(10L, 10L, 10L, 10L), "committed offsets");
        }
    }

    /** Partitions and topics come while a group reads by a pattern: nothing is left out, and in a partition keys are in order. */
    static void appear(Protocol protocol) throws Exception {
        String first = protocol.topic() + "-new-a";
        String second = protocol.topic() + "-new-b";
        create(first, 2);
        var more = Stream.concat(
            Stream.of("group.id", group + protocol.suffix() + "-new", "metadata.max.age.ms", "500"),
            Stream.of(protocol.settings()));
        try (var consumer = consumer(more.toArray(String[]::new))) {
            consumer.subscribe(Pattern.compile(Pattern.quote(protocol.topic()) + "-new-.*"));
            until("the first partitions", () -> {
                poll(consumer);
                return consumer.assignment().size() == 2;
            });
            List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
            produce(spreadOver(first, 0));
            admin.createPartitions(Map.of(first, NewPartitions.increaseTo(8))).all().get();
            create(second, 1);
            produce(spreadOver(first, 100));
            produce(spreadOver(second, 200));
            until("every record", () -> {
                // Who is given everything anew begins at what is committed.
                got.addAll(poll(consumer));
                consumer.commitSync();
                return got.size() >= 120 && consumer.assignment().size() == 9;
            });
            same(got.size(), 120, "records");
            Map<String, Integer> last = new TreeMap<>();
            for (var record : got) {
                String of = record.topic() + "-" + record.partition() + " " + text(record.key());
                Integer value = Integer.valueOf(text(record.value()));
                Integer before = last.put(of, value);
                if (before != null && before >= value) {
                    throw new AssertionError(of + ": " + value + " after " + before);
                }
            }
        }
    }

    /** Forty records of eight keys, where the partitioner puts them. */
    static List<ProducerRecord<byte[], byte[]>> spreadOver(String name, int from) {
        return IntStream.range(from, from + 40)
            .mapToObj(n -> new ProducerRecord<>(name, bytes("k" + n % 8), bytes(String.valueOf(n))))
            .toList();
    }

    static void offsetsByTime() throws Exception {
        String where = prefix + "-time";
        create(where, 1);
        produce(IntStream.range(0, 10).mapToObj(n -> numbered(where, 0, EPOCH_MS + n * STEP_MS, n)).toList());
        TopicPartition partition = new TopicPartition(where, 0);
        try (var consumer = consumer()) {
            List<Long> got = new ArrayList<>();
            for (long t : new long[] {0, 3 * STEP_MS, 3 * STEP_MS + 1, 10 * STEP_MS}) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, EPOCH_MS + t)).get(partition);
                got.add(found == null ? -1 : found.offset());
            }
            same(got, List.of(0L, 3L, 4L, -1L), "offsets by time");
            same(consumer.beginningOffsets(List.of(partition)).get(partition), 0L, "first offset");
            same(consumer.endOffsets(List.of(partition)).get(partition), 10L, "end offset");
        }
        var record = read(where, 1, 7).get(0);
        same(List.of(record.offset(), record.timestamp()), List.of(7L, EPOCH_MS + 7 * STEP_MS), "record at offset 7");
    }

    /** What three members of a share group have made of each record, by its number. */
    record Shared(Map<Integer, Integer> accepted, Set<Integer> rejected) {
        boolean isWhole(int count) {
            return accepted.size() + rejected.size() >= count;
        }
    }

    static KafkaShareConsumer<byte[], byte[]> sharing(String shareGroup) {
        return new KafkaShareConsumer<>(settings("group.id", shareGroup, "max.poll.records", "50",
            "share.acknowledgement.mode", "explicit", "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName()));
    }

    /** Takes records until all are done with; `leaves`: goes with the first ones in hand. */
    static void share(String shareGroup, String where, int count, boolean leaves, Shared shared) throws Exception {
        try (var member = sharing(shareGroup)) {
            member.subscribe(List.of(where));
            while (!shared.isWhole(count)) {
                var records = member.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                if (leaves) {
                    return;
                }
                List<Integer> accepted = new ArrayList<>();
                List<Integer> rejected = new ArrayList<>();
                for (var record : records) {
                    int n = Integer.parseInt(text(record.value()));
                    if (n % 10 == 0 && record.deliveryCount().orElse((short) 0) == 1) {
                        member.acknowledge(record, AcknowledgeType.RELEASE);
                    } else if (n % 97 == 1) {
                        member.acknowledge(record, AcknowledgeType.REJECT);
                        rejected.add(n);
                    } else {
                        member.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.add(n);
                    }
                }
                for (var error : member.commitSync().values()) {
                    if (error.isPresent()) {
                        throw error.get();
                    }
                }
                accepted.forEach(n -> shared.accepted().merge(n, 1, Integer::sum));
                shared.rejected().addAll(rejected);
            }
        }
    }

    static void shareGroup() throws Exception {
        int count = 1_000;
        String where = prefix + "-share";
        String shareGroup = prefix + "-shared";
        create(where, 4);
        var reset = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, shareGroup), List.of(reset)))
            .all().get();
        produce(IntStream.range(0, count).mapToObj(n -> numbered(where, n % 4, null, n)).toList(), "batch.size", "256");
        var shared = new Shared(new ConcurrentHashMap<>(), ConcurrentHashMap.newKeySet());
        List<Future<?>> members = new ArrayList<>();
        for (boolean leaves : List.of(true, false, false)) {
            members.add(RUNNER.submit(() -> {
                share(shareGroup, where, count, leaves, shared);
                return null;
            }));
        }
        for (var member : members) {
            member.get();
        }
        Set<Integer> rejected = new TreeSet<>(shared.rejected());
        same(rejected, new TreeSet<>(IntStream.range(0, count).filter(n -> n % 97 == 1).boxed().toList()), "rejected");
        same(shared.accepted().size(), count - rejected.size(), "accepted");
        same(shared.accepted().values().stream().allMatch(times -> times == 1), true, "each accepted once");
        try (var member = sharing(shareGroup)) {
            member.subscribe(List.of(where));
            for (int i = 0; i < 5; i++) {
                same(member.poll(Duration.ofMillis(200)).count(), 0, "what comes again");
            }
        }
        var described = admin.describeShareGroups(List.of(shareGroup)).all().get().get(shareGroup);
        same(described.groupState().toString(), "Empty", "the group's state");
    }

    /** What a member rejects, and what is given back too often, is found in a topic of its own, with where it was. */
    static void deadLetters() throws Exception {
        String where = prefix + "-letters";
        String shareGroup = prefix + "-letters-group";
        String letters = "dlq." + prefix;
        create(where, 1);
        var allowed = Map.of("errors.deadletterqueue.group.enable", "true");
        admin.createTopics(List.of(new NewTopic(letters, 1, (short) 1).configs(allowed))).all().get();
        var settings = Map.of("share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", letters,
            "errors.deadletterqueue.copy.record.enable", "true", "share.delivery.count.limit", "2");
        var set = settings.entrySet().stream()
            .map(e -> new AlterConfigOp(new ConfigEntry(e.getKey(), e.getValue()), AlterConfigOp.OpType.SET)).toList();
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, shareGroup), set)).all().get();
        produce(IntStream.range(0, 6).mapToObj(n -> numbered(where, 0, null, n)).toList());
        // 0 and 3 are rejected, 1 and 4 given back each time, 2 and 5 accepted.
        Map<Integer, Integer> times = new TreeMap<>();
        try (var member = sharing(shareGroup)) {
            member.subscribe(List.of(where));
            until("six records, two of them twice", () -> {
                for (var record : member.poll(Duration.ofMillis(200))) {
                    int n = Integer.parseInt(text(record.value()));
                    times.merge(n, 1, Integer::sum);
                    member.acknowledge(record, List.of(
                        AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT).get(n % 3));
                }
                member.commitSync();
                return times.values().stream().mapToInt(Integer::intValue).sum() >= 8;
            });
        }
        same(times.toString(), "{0=1, 1=2, 2=1, 3=1, 4=2, 5=1}", "how often each came");
        List<String> found = new ArrayList<>();
        for (var letter : read(letters, 4, 0)) {
            Map<String, String> said = new TreeMap<>();
            letter.headers().forEach(h -> said.put(h.key().replace("__dlq.errors.", ""), text(h.value())));
            found.add(text(letter.value()) + " " + said.get("topic").equals(where) + " " + said.get("partition") + "@"
                + said.get("offset") + " " + said.get("group").equals(shareGroup) + " " + said.get("delivery.count"));
        }
        found.sort(null);
        same(found, List.of("0 true 0@0 true 1", "1 true 0@1 true 2", "3 true 0@3 true 1", "4 true 0@4 true 2"), "letters");
    }

    static void groupsListed() throws Exception {
        List<String> listed = admin.listGroups().all().get().stream().map(GroupListing::groupId).toList();
        same(listed.contains(group), true, group + " is listed");
        var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        same(described.groupState() + " " + described.members().size(), "Empty 0", "state and members");
    }

    static void deleteTopic() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        until("the topic is gone", () -> !admin.listTopics().names().get().contains(topic));
    }
}
