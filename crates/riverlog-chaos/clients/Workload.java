import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers and consumers of Kafka's own client that write down what they do and what they are told.
 *
 * <p>The drills start it beside workload.py, whose topic it uses, with the same options, commands and history; what is read
 * whole, and who looks at bounds and commits, is that program's affair.
 */
public class Workload {
    static final Map<String, String> options = new HashMap<>(Map.of(
            "topic", "drill", "partitions", "4", "most-bytes", "1500", "seed", "1", "rate", "300"));
    static String topic;
    static int partitions;
    static int mostBytes;
    static PrintWriter history;
    static volatile boolean quiet;
    static volatile boolean stopping;
    static final List<Sender> senders = new ArrayList<>();
    static final List<Reader> readers = new ArrayList<>();

    /** One line of the history; `more` is the rest of a JSON object. */
    static void note(String client, String op, String more) {
        // Linux's monotonic clock, as the other clients have it.
        String line = "{\"at\":" + System.nanoTime() + ",\"client\":\"" + client + "\",\"op\":\"" + op + "\"" + more + "}";
        synchronized (history) {
            history.println(line);
        }
    }

    static String place(int partition) {
        return "[\"" + topic + "\"," + partition + "]";
    }

    static String quoted(String text) {
        return text == null ? "null" : "\"" + text + "\"";
    }

    /** A value that shows when a byte of it is another, as in workload.py. */
    static byte[] bytesOf(String value) {
        CRC32 sum = new CRC32();
        sum.update(value.getBytes(StandardCharsets.US_ASCII));
        int size = (int) (sum.getValue() % mostBytes);
        String tail = value.repeat(size / value.length() + 1).substring(0, size);
        return (value + " " + tail).getBytes(StandardCharsets.US_ASCII);
    }

    static String valueOf(byte[] data) {
        String name = new String(data, StandardCharsets.US_ASCII).split(" ", 2)[0];
        boolean sound = !name.isEmpty() && Arrays.equals(bytesOf(name), data);
        return (sound ? name : name.replaceAll("[^a-z0-9-]", "?") + " damaged");
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        settings.put("request.timeout.ms", 10_000);
        settings.put("socket.connection.setup.timeout.ms", 2_000);
        settings.put("metadata.max.age.ms", 2_000);
        return settings;
    }

    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** An idempotent producer, or one in transactions. */
    static class Sender extends Thread {
        final Random random;
        final boolean transactions;
        final AtomicLong acked = new AtomicLong();
        final AtomicLong pending = new AtomicLong();
        final KafkaProducer<byte[], byte[]> producer;
        /** Told to be quiet, with nothing under way. */
        volatile boolean idle;
        volatile boolean failed;
        int count;

        Sender(String name, boolean transactions) {
            super(name);
            setDaemon(true);
            this.transactions = transactions;
            random = new Random(Long.parseLong(options.get("seed")) * 31 + name.hashCode());
            Properties settings = settings();
            settings.put("acks", "all");
            settings.put("linger.ms", 2);
            settings.put("enable.idempotence", true);
            settings.put("max.block.ms", 60_000);
            settings.put("delivery.timeout.ms", transactions ? 50_000 : 300_000);
            if (transactions) {
                settings.put("transactional.id", topic + "-" + name);
                settings.put("transaction.timeout.ms", 60_000);
            }
            note(name, "open", ",\"idempotent\":true,\"retries\":true");
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }

        void send(String txn) {
            String value = getName() + "-" + count++;
            int partition = random.nextInt(partitions);
            String at = ",\"place\":" + place(partition) + ",\"value\":" + quoted(value);
            note(getName(), "send", at + ",\"txn\":" + quoted(txn));
            pending.incrementAndGet();
            try {
                producer.send(new ProducerRecord<>(topic, partition, null, bytesOf(value)), (told, error) -> {
                    if (error == null) {
                        acked.incrementAndGet();
                        note(getName(), "ack", at + ",\"offset\":" + told.offset());
                    } else {
                        failure(value, error);
                    }
                    pending.decrementAndGet();
                });
            } catch (KafkaException error) {
                pending.decrementAndGet();
                failure(value, error);
            }
            double wait = -Math.log(1 - random.nextDouble()) * 1000 / Double.parseDouble(options.get("rate"));
            pause((long) Math.min(wait, 50));
        }

        void failure(String value, Exception error) {
            failed = true;
            System.err.println(value + ": " + error);
            note(getName(), "fail", ",\"value\":" + quoted(value) + ",\"maybe\":true");
        }

        @Override
        public void run() {
            if (transactions) {
                insist(producer::initTransactions);
            }
            int number = 0;
            while (!stopping) {
                idle = quiet && pending.get() == 0;
                if (quiet || pending.get() > 1_000) {
                    pause(20);
                } else if (transactions) {
                    transaction(getName() + "-txn-" + number++);
                } else {
                    for (int left = 1 + random.nextInt(19); left > 0; left--) {
                        send(null);
                    }
                }
            }
            producer.close(Duration.ofSeconds(20));
            note(getName(), "close", "");
        }

        void transaction(String txn) {
            producer.beginTransaction();
            failed = false;
            boolean commit = random.nextDouble() < 0.7;
            for (int left = 1 + random.nextInt(19); left > 0 && !failed; left--) {
                send(txn);
            }
            // What is aborted has been stored: a client that gives up sooner has nothing to hide from readers.
            while (pending.get() > 0) {
                pause(1);
            }
            boolean ends = commit && !failed;
            note(getName(), "ending", ",\"txn\":" + quoted(txn) + ",\"commit\":" + ends);
            try {
                insist(ends ? producer::commitTransaction : producer::abortTransaction);
            } catch (ProducerFencedException error) {
                throw error;
            } catch (KafkaException error) {
                // Refused, and to be aborted: so the client's documentation has it.
                System.err.println(txn + ": " + error);
                insist(producer::abortTransaction);
                if (ends) {
                    return;
                }
            }
            note(getName(), "ended", ",\"txn\":" + quoted(txn) + ",\"committed\":" + ends);
        }

        /** Again until it is answered. */
        void insist(Runnable call) {
            while (true) {
                try {
                    call.run();
                    return;
                } catch (TimeoutException error) {
                    System.err.println(getName() + ": " + error);
                }
            }
        }
    }

    /** A member of a group that commits what it has got. */
    static class Reader extends Thread implements ConsumerRebalanceListener {
        final String group;
        final KafkaConsumer<byte[], byte[]> consumer;
        final AtomicLong records = new AtomicLong();
        final Set<Integer> mine = new ConcurrentSkipListSet<>();
        /** The next offset of each partition, as far as this member has come. */
        final Map<Integer, Long> reached = new ConcurrentHashMap<>();
        final Map<Integer, Long> toCommit = new TreeMap<>();

        Reader(String name, String group, boolean modern) {
            super(name);
            setDaemon(true);
            this.group = group;
            Properties settings = settings();
            settings.put("group.id", group);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("isolation.level", "read_committed");
            settings.put("fetch.max.wait.ms", 100);
            settings.put("max.poll.records", 200);
            settings.put("default.api.timeout.ms", 10_000);
            if (modern) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("session.timeout.ms", 6_000);
                settings.put("heartbeat.interval.ms", 500);
            }
            note(name, "open", ",\"group\":" + quoted(group) + ",\"read_committed\":true");
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            given.forEach(p -> mine.add(p.partition()));
            assigned();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            for (TopicPartition p : taken) {
                mine.remove(p.partition());
                reached.remove(p.partition());
                toCommit.remove(p.partition());
            }
            assigned();
        }

        void assigned() {
            String places = mine.stream().map(Workload::place).collect(Collectors.joining(","));
            note(getName(), "assign", ",\"places\":[" + places + "]");
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            for (int polls = 1; !stopping; polls++) {
                long since = System.nanoTime();
                List<String> got = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    got.add("[" + place(record.partition()) + "," + record.offset() + ","
                            + quoted(valueOf(record.value())) + "]");
                    toCommit.put(record.partition(), record.offset() + 1);
                }
                note(getName(), "poll", ",\"since\":" + since + ",\"records\":[" + String.join(",", got) + "]");
                records.addAndGet(got.size());
                // What it has reached counts once the history says how.
                for (int partition : mine) {
                    try {
                        TopicPartition at = new TopicPartition(topic, partition);
                        reached.put(partition, consumer.position(at, Duration.ofMillis(50)));
                    } catch (KafkaException | IllegalStateException error) {
                        // Not known yet, or taken away.
                    }
                }
                if (polls % 3 == 0 && !toCommit.isEmpty()) {
                    commit(new TreeMap<>(toCommit));
                    toCommit.clear();
                }
            }
            consumer.close();
            note(getName(), "close", "");
        }

        void commit(Map<Integer, Long> offsets) {
            Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
            offsets.forEach((partition, offset) -> {
                wanted.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset));
                note(getName(), "committing", committed(partition, offset));
            });
            boolean stored = true;
            try {
                consumer.commitSync(wanted);
            } catch (KafkaException error) {
                System.err.println(getName() + ": " + error);
                stored = false;
            }
            String told = ",\"stored\":" + stored;
            offsets.forEach((partition, offset) -> note(getName(), "committed", committed(partition, offset) + told));
        }

        String committed(int partition, long offset) {
            return ",\"group\":" + quoted(group) + ",\"place\":" + place(partition) + ",\"offset\":" + offset;
        }
    }

    static boolean until(double seconds, BooleanSupplier condition) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                return false;
            }
            pause(20);
        }
        return true;
    }

    static Set<String> groups() {
        return readers.stream().map(r -> r.group).collect(Collectors.toCollection(TreeSet::new));
    }

    static long read(String group) {
        return readers.stream().filter(r -> r.group.equals(group)).mapToLong(r -> r.records.get()).sum();
    }

    /** Every producer is answered, every group gets something. */
    static String progress(double seconds) {
        Map<Sender, Long> acked = new HashMap<>();
        senders.forEach(s -> acked.put(s, s.acked.get()));
        Map<String, Long> before = new HashMap<>();
        groups().forEach(g -> before.put(g, read(g)));
        Set<String> still = new TreeSet<>();
        boolean moved = until(seconds, () -> {
            still.clear();
            senders.stream().filter(s -> s.acked.get() <= acked.get(s)).forEach(s -> still.add(s.getName()));
            groups().stream().filter(g -> read(g) <= before.get(g)).forEach(g -> still.add("group " + g));
            return still.isEmpty();
        });
        return moved ? "" : "stood still: " + String.join(", ", still);
    }

    /** Nothing new is sent, and what was sent is answered. */
    static String quiet(double seconds) {
        quiet = true;
        boolean answered = until(seconds, () -> senders.stream().allMatch(s -> s.idle));
        return answered ? "" : "a producer of the Java client has no answer to what it sent";
    }

    /** All groups come to the end of all partitions. */
    static String drain(double seconds) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = IntStream.range(0, partitions).boxed()
                .collect(Collectors.toMap(p -> new TopicPartition(topic, p), p -> OffsetSpec.latest()));
        Map<Integer, Long> ends = new HashMap<>();
        try (Admin admin = Admin.create(settings())) {
            var listed = admin.listOffsets(asked).all().get((long) (seconds * 1000), TimeUnit.MILLISECONDS);
            listed.forEach((at, end) -> ends.put(at.partition(), end.offset()));
        }
        for (String group : groups()) {
            boolean drained = until(seconds, () -> ends.entrySet().stream().allMatch(end -> {
                return readers.stream().anyMatch(r -> r.group.equals(group) && r.mine.contains(end.getKey())
                        && r.reached.getOrDefault(end.getKey(), -1L) >= end.getValue());
            }));
            if (!drained) {
                return "group " + group + " did not come to the end";
            }
            note("java", "drained", ",\"group\":" + quoted(group));
        }
        return "";
    }

    static String end() throws InterruptedException {
        stopping = true;
        List<Thread> all = new ArrayList<>(senders);
        all.addAll(readers);
        for (Thread thread : all) {
            thread.join(30_000);
            if (thread.isAlive()) {
                return thread.getName() + " doesn't end";
            }
        }
        return "";
    }

    static String answer(String word, double seconds) throws Exception {
        return switch (word) {
            case "progress" -> progress(seconds);
            case "quiet" -> quiet(seconds);
            case "drain" -> drain(seconds);
            case "end" -> end();
            default -> "";
        };
    }

    public static void main(String[] words) throws Exception {
        for (int at = 0; at < words.length; at++) {
            String name = words[at].substring(2);
            boolean flag = at + 1 == words.length || words[at + 1].startsWith("--");
            options.put(name, flag ? "yes" : words[++at]);
        }
        topic = options.get("topic");
        partitions = Integer.parseInt(options.get("partitions"));
        mostBytes = Integer.parseInt(options.get("most-bytes"));
        history = new PrintWriter(Files.newBufferedWriter(Path.of(options.get("history"))));
        senders.add(new Sender("j1", false));
        if (options.containsKey("transactions")) {
            senders.add(new Sender("jt1", true));
        }
        readers.add(new Reader("jc1", "java", false));
        readers.add(new Reader("jc2", "java", false));
        if (options.containsKey("modern")) {
            readers.add(new Reader("jd1", "java-modern", true));
        }
        senders.forEach(Thread::start);
        readers.forEach(Thread::start);
        System.out.println("ok");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] said = line.split(" ");
            String answer = answer(said[0], Double.parseDouble(said[said.length - 1]));
            synchronized (history) {
                history.flush();
            }
            System.out.println(answer.isEmpty() ? "ok" : "no " + answer);
            if (said[0].equals("end")) {
                return;
            }
        }
    }
}
