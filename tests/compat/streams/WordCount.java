import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams, exactly once, while the application is killed and started again and again, first in a classic
 * group, then in a streams group: WordCount.java BOOTSTRAP PREFIX. How often it is killed each time is in the variable KILLS, 3
 * unless set; see ../README.md.
 */
public class WordCount {
    static final int PARTITIONS = 3;
    static final int LINES_A_ROUND = 1_000;
    static final String[] WORDS = {"log", "offset", "segment", "leader", "epoch", "fence", "batch", "index"};

    public static void main(String[] args) throws Exception {
        if (args.length == 5 && args[0].equals("application")) {
            application(args[1], args[2], args[3], args[4]);
            return;
        }
        int kills = Integer.parseInt(System.getenv().getOrDefault("KILLS", "3"));
        for (String protocol : List.of("classic", "streams")) {
            String name = protocol.equals("classic") ? "streams-word-count" : "streams-word-count-kip1071";
            try {
                run(args[0], args[1] + "-" + protocol, protocol, kills);
                System.out.println("PASS " + name);
            } catch (Throwable e) {
                String text = String.valueOf(e).replaceAll("\\s+", " ");
                System.out.println("FAIL " + name + " " + text.substring(0, Math.min(600, text.length())));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** The application: what is killed. */
    static void application(String bootstrap, String prefix, String protocol, String state) {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, prefix + "-count");
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put(StreamsConfig.STATE_DIR_CONFIG, state);
        p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, -1);
        p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        p.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        // In a streams group the broker says both.
        if (protocol.equals("classic")) {
            p.put("session.timeout.ms", 6_000);
            p.put("heartbeat.interval.ms", 500);
        }
        p.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(prefix + "-lines")
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count()
                .toStream()
                .to(prefix + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    static void run(String bootstrap, String prefix, String protocol, int kills) throws Exception {
        Path state = Files.createTempDirectory("word-count");
        String lines = prefix + "-lines";
        String counts = prefix + "-counts";
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(p)) {
            List<NewTopic> topics = List.of(
                    new NewTopic(lines, PARTITIONS, (short) 1), new NewTopic(counts, PARTITIONS, (short) 1));
            admin.createTopics(topics).all().get();
        }
        Random random = new Random(42);
        Map<String, Long> expected = new HashMap<>();
        Process application = null;
        try (var producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
                var reader = reader(bootstrap, counts)) {
            Map<String, Long> seen = new HashMap<>();
            long before = 0;
            for (int round = 0; round <= kills; round++) {
                application = start(bootstrap, prefix, protocol, state);
                for (int line = 0; line < LINES_A_ROUND; line++) {
                    StringBuilder text = new StringBuilder();
                    for (int word = 0; word < 5; word++) {
                        String one = WORDS[random.nextInt(WORDS.length)];
                        expected.merge(one, 1L, Long::sum);
                        text.append(word == 0 ? "" : " ").append(one);
                    }
                    producer.send(new ProducerRecord<>(lines, String.valueOf(line), text.toString()));
                    if (line % 100 == 99) {
                        producer.flush();
                        Thread.sleep(10);
                    }
                }
                producer.flush();
                if (round < kills) {
                    // In the middle of the work: something of this round is counted, and not all of it.
                    long begun = before;
                    until(60, "anything is counted in round " + round, application, () -> {
                        read(reader, seen);
                        return total(seen) > begun;
                    });
                    Thread.sleep(random.nextInt(300));
                    application.destroyForcibly().waitFor();
                    read(reader, seen);
                    before = total(seen);
                }
            }
            until(90, "all is counted", application, () -> {
                read(reader, seen);
                return total(seen) >= total(expected);
            });
            try (Admin admin = Admin.create(p)) {
                var type = admin.listGroups().all().get().stream()
                        .filter(group -> group.groupId().equals(prefix + "-count"))
                        .findFirst().orElseThrow().type().orElseThrow().toString();
                if (!type.equalsIgnoreCase(protocol)) {
                    throw new AssertionError("the group is of type " + type + ", not " + protocol);
                }
            }
            // Nothing more may come.
            Thread.sleep(1_000);
            read(reader, seen);
            if (!seen.equals(expected)) {
                throw new AssertionError("expected " + expected + ", counted " + seen);
            }
        } finally {
            if (application != null) {
                application.destroyForcibly().waitFor();
            }
            remove(state.toFile());
        }
    }

    static Process start(String bootstrap, String prefix, String protocol, Path state) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                "java", "-XX:TieredStopAtLevel=1", "-Xmx384m", "-cp", System.getProperty("java.class.path")));
        String logging = System.getProperty("log4j2.configurationFile");
        if (logging != null) {
            command.add("-Dlog4j2.configurationFile=" + logging);
        }
        command.addAll(List.of(
                System.getProperty("program"), "application", bootstrap, prefix, protocol, state.toString()));
        return new ProcessBuilder(command).inheritIO().start();
    }

    static KafkaConsumer<String, Long> reader(String bootstrap, String topic) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("isolation.level", "read_committed");
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        var reader = new KafkaConsumer<>(p, new StringDeserializer(), new LongDeserializer());
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            all.add(new TopicPartition(topic, partition));
        }
        reader.assign(all);
        reader.seekToBeginning(all);
        return reader;
    }

    /** Takes what has come; a count that was committed never goes back. */
    static void read(KafkaConsumer<String, Long> reader, Map<String, Long> seen) {
        for (var record : reader.poll(Duration.ofMillis(200))) {
            Long before = seen.put(record.key(), record.value());
            if (before != null && before >= record.value()) {
                throw new AssertionError(record.key() + " went from " + before + " to " + record.value());
            }
        }
    }

    static long total(Map<String, Long> counts) {
        return counts.values().stream().mapToLong(Long::longValue).sum();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(int seconds, String what, Process application, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.holds()) {
            if (!application.isAlive()) {
                throw new AssertionError(what + ": the application ended with " + application.exitValue());
            }
            if (System.nanoTime() > end) {
                throw new AssertionError(what + ": not within " + seconds + " s");
            }
        }
    }

    static void remove(File file) {
        File[] inside = file.listFiles();
        for (File one : inside == null ? new File[0] : inside) {
            remove(one);
        }
        file.delete();
    }
}
