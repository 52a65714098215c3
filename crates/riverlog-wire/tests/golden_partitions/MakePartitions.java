import java.io.DataOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/**
 * Writes 10,000 random keys and where Kafka's own producer puts each: its length (a byte), its bytes, its partition of 12 (a byte)
 * and of 1,000 (two bytes, big-endian).
 *
 * Run by `cargo xtask codegen --golden`.
 */
public final class MakePartitions {
    public static void main(String[] args) throws Exception {
        Random random = new Random(80);
        try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(Path.of(args[0])))) {
            for (int n = 0; n < 10_000; n++) {
                byte[] key = new byte[random.nextInt(32)];
                random.nextBytes(key);
                out.writeByte(key.length);
                out.write(key);
                out.writeByte(BuiltInPartitioner.partitionForKey(key, 12));
                out.writeShort(BuiltInPartitioner.partitionForKey(key, 1_000));
            }
        }
    }
}
