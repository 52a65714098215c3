import java.io.File;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * A distributed Connect worker with the file connectors copies lines through a topic, is killed, and goes on where it was:
 * FileConnect.java BOOTSTRAP PREFIX; see ../README.md.
 */
public class FileConnect {
    static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] args) {
        String name = "connect-files";
        try {
            run(args[0], args[1]);
            System.out.println("PASS " + name);
        } catch (Throwable e) {
            String text = String.valueOf(e).replaceAll("\\s+", " ");
            System.out.println("FAIL " + name + " " + text.substring(0, Math.min(600, text.length())));
        }
        Runtime.getRuntime().halt(0);
    }

    static void run(String bootstrap, String prefix) throws Exception {
        Path dir = Files.createTempDirectory("file-connect");
        Path in = Files.createFile(dir.resolve("in.txt"));
        Path out = dir.resolve("out.txt");
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        String rest = "http://127.0.0.1:" + port;
        Path settings = dir.resolve("worker.properties");
        Files.writeString(settings, String.join("\n",
                "bootstrap.servers=" + bootstrap,
                "group.id=" + prefix + "-connect",
                "listeners=" + rest,
                "key.converter=org.apache.kafka.connect.storage.StringConverter",
                "value.converter=org.apache.kafka.connect.storage.StringConverter",
                "config.storage.topic=" + prefix + "-connect-configs",
                "offset.storage.topic=" + prefix + "-connect-offsets",
                "status.storage.topic=" + prefix + "-connect-status",
                "config.storage.replication.factor=-1",
                "offset.storage.replication.factor=-1",
                "status.storage.replication.factor=-1",
                "offset.flush.interval.ms=500",
                "session.timeout.ms=6000",
                "heartbeat.interval.ms=1000",
                "scheduled.rebalance.max.delay.ms=0",
                ""));
        Process worker = null;
        try {
            worker = start(settings);
            until(60, "the worker answers", worker, () -> get(rest + "/connectors") == 200);
            String topic = prefix + "-connect-lines";
            put(rest + "/connectors/source/config", "{\"connector.class\":\"FileStreamSource\",\"tasks.max\":\"1\","
                    + "\"file\":\"" + in + "\",\"topic\":\"" + topic + "\"}");
            put(rest + "/connectors/sink/config", "{\"connector.class\":\"FileStreamSink\",\"tasks.max\":\"1\","
                    + "\"file\":\"" + out + "\",\"topics\":\"" + topic + "\"}");
            List<String> lines = new ArrayList<>();
            write(in, lines, 100);
            until(40, "the first lines arrive", worker, () -> found(out).equals(new LinkedHashSet<>(lines)));
            worker.destroyForcibly().waitFor();
            write(in, lines, 100);
            worker = start(settings);
            // What was not committed when it was killed may come twice; nothing is left out, and the order stays.
            until(80, "the lines behind the kill arrive", worker, () -> found(out).equals(new LinkedHashSet<>(lines)));
            if (!new ArrayList<>(found(out)).equals(lines)) {
                throw new AssertionError("the lines are in another order");
            }
        } finally {
            if (worker != null) {
                worker.destroyForcibly().waitFor();
            }
            for (File file : dir.toFile().listFiles()) {
                file.delete();
            }
            Files.deleteIfExists(dir);
        }
    }

    static Process start(Path settings) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                "java", "-XX:TieredStopAtLevel=1", "-Xmx384m", "-cp", System.getProperty("java.class.path")));
        String logging = System.getProperty("log4j2.configurationFile");
        if (logging != null) {
            command.add("-Dlog4j2.configurationFile=" + logging);
        }
        command.addAll(List.of("org.apache.kafka.connect.cli.ConnectDistributed", settings.toString()));
        return new ProcessBuilder(command).inheritIO().start();
    }

    static void write(Path file, List<String> lines, int count) throws Exception {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < count; i++) {
            String line = "line " + lines.size();
            lines.add(line);
            text.append(line).append('\n');
        }
        Files.writeString(file, text, StandardOpenOption.APPEND);
    }

    static Set<String> found(Path file) throws Exception {
        return Files.exists(file) ? new LinkedHashSet<>(Files.readAllLines(file)) : Set.of();
    }

    static int get(String url) throws Exception {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
            return HTTP.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        } catch (java.io.IOException e) {
            return 0;
        }
    }

    static void put(String url, String body) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (true) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                    .header("Content-Type", "application/json")
                    .PUT(HttpRequest.BodyPublishers.ofString(body))
                    .build();
            var answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() / 100 == 2) {
                return;
            }
            // While the group of workers changes it says so.
            if (answer.statusCode() != 409 || System.nanoTime() > end) {
                throw new AssertionError(url + ": " + answer.statusCode() + " " + answer.body());
            }
            Thread.sleep(200);
        }
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(int seconds, String what, Process worker, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.holds()) {
            if (!worker.isAlive()) {
                throw new AssertionError(what + ": the worker ended with " + worker.exitValue());
            }
            if (System.nanoTime() > end) {
                throw new AssertionError(what + ": not within " + seconds + " s");
            }
            Thread.sleep(100);
        }
    }
}
