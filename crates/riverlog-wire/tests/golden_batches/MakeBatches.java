import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/**
 * Writes record batches as Kafka's own client and cleaner make them, one file a case. What they hold is said
 * again in ../batches.rs, which reads them.
 *
 * Run with the jars of kafka-clients 4.4.0, slf4j-api, snappy-java, lz4-java and zstd-jni in lib/:
 *   java -cp 'lib/*' MakeBatches.java .
 */
public final class MakeBatches {
    private static final long TIME = 1_700_000_000_000L;

    private static Path folder;

    public static void main(String[] args) throws Exception {
        folder = Path.of(args[0]);
        for (CompressionType codec : CompressionType.values()) {
            write("mixed-" + codec.name, mixed(builder(codec, TimestampType.CREATE_TIME, 0)));
            if (codec != CompressionType.NONE) {
                write("large-" + codec.name, large(builder(codec, TimestampType.CREATE_TIME, 0)));
            }
        }
        write("untimed", untimed());
        write("append-time", mixed(builder(CompressionType.NONE, TimestampType.LOG_APPEND_TIME, 0)));
        write("stored", mixed(builder(CompressionType.NONE, TimestampType.CREATE_TIME, 123_456_789_012L)));
        write("idempotent", three(false));
        write("transactional", three(true));
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.COMMIT, ControlRecordType.ABORT}) {
            EndTransactionMarker marker = new EndTransactionMarker(type, 42);
            write("marker-" + type.name().toLowerCase(), bytes(MemoryRecords.withEndTransactionMarker(
                    0, TIME, RecordBatch.NO_PARTITION_LEADER_EPOCH, 4_000_000_000L, (short) 7, marker)));
        }
        write("leader-change", bytes(MemoryRecords.withLeaderChangeMessage(
                9, TIME, 3, ByteBuffer.allocate(1024), new LeaderChangeMessage().setLeaderId(1))));
        write("cleaned", cleaned(BatchRetention.DELETE_EMPTY, 0));
        write("emptied", cleaned(BatchRetention.RETAIN_EMPTY, Long.MAX_VALUE));
    }

    private static MemoryRecordsBuilder builder(CompressionType codec, TimestampType type, long baseOffset) {
        int epoch = baseOffset == 0 ? RecordBatch.NO_PARTITION_LEADER_EPOCH : 5;
        return MemoryRecords.builder(
                ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2, Compression.of(codec).build(), type,
                baseOffset, TIME + 60_000, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
                RecordBatch.NO_SEQUENCE, false, epoch);
    }

    /** One record of each kind. */
    private static byte[] mixed(MemoryRecordsBuilder builder) {
        Header[] headers = {
            new RecordHeader("trace", utf8("abc")), new RecordHeader("trace", utf8("def")),
            new RecordHeader("empty", new byte[0]), new RecordHeader("null", (byte[]) null)};
        builder.append(TIME, utf8("key-0"), utf8("value-0"), headers);
        builder.append(TIME + 1, null, utf8("no key"));
        builder.append(TIME + 2_000, utf8("k"), null);
        builder.append(TIME - 5_000, new byte[0], new byte[0]);
        byte[] pattern = new byte[3_000];
        for (int i = 0; i < pattern.length; i++) {
            pattern[i] = (byte) (i * 31 % 251);
        }
        builder.append(TIME + 7, utf8("pattern"), pattern);
        return bytes(builder.build());
    }

    /** More than a block of every codec. */
    private static byte[] large(MemoryRecordsBuilder builder) {
        for (int i = 0; i < 1_000; i++) {
            String word = Integer.toString(i * 7919 % 1_000);
            builder.append(TIME + i, utf8("key-" + i), utf8((word + ";").repeat(30)));
        }
        return bytes(builder.build());
    }

    private static byte[] untimed() {
        MemoryRecordsBuilder builder = builder(CompressionType.NONE, TimestampType.CREATE_TIME, 0);
        builder.append(RecordBatch.NO_TIMESTAMP, null, utf8("a"));
        builder.append(RecordBatch.NO_TIMESTAMP, null, utf8("b"));
        return bytes(builder.build());
    }

    private static byte[] three(boolean transactional) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1024), Compression.NONE, 0, 4_000_000_000L, (short) 7, 2_147_483_646,
                transactional);
        for (int i = 0; i < 3; i++) {
            builder.append(TIME + i, utf8("k" + i), utf8("v" + i));
        }
        return bytes(builder.build());
    }

    /** What the log cleaner leaves of "mixed" when the second record goes, and all below {@code from}. */
    private static byte[] cleaned(BatchRetention retention, long from) {
        MemoryRecordsBuilder builder = builder(CompressionType.NONE, TimestampType.CREATE_TIME, 123_456_789_012L);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(mixed(builder)));
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        records.filterTo(new RecordFilter(TIME + 100_000, 86_400_000L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(retention, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                long delta = record.offset() - batch.baseOffset();
                return delta != 1 && delta >= from;
            }
        }, out, BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
        out.flip();
        return bytes(MemoryRecords.readableRecords(out));
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static void write(String name, byte[] bytes) throws Exception {
        Files.write(folder.resolve(name + ".bin"), bytes);
    }
}
