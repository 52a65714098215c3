import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.ImplicitLinkedHashCollection;

/**
 * Writes what Kafka's own client makes of every request and response that a broker serves, in every version:
 * once with all fields at their defaults, once with all fields that the version has filled, and once with all
 * of them null that may be. The output is a gzip file of entries: key i16, version i16, kind u8 (0 request,
 * 1 response), shape u8 (0 default, 1 filled, 2 nulls), length i32, bytes.
 *
 * Run by {@code cargo xtask codegen --golden}.
 */
public final class MakeGolden {
    enum Shape { DEFAULTS, FILLED, NULLS }

    /** Counts up so that no two fields get the same value; restarted for each message. */
    private static int counter;

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream plain = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(plain);
        int entries = 0;
        for (ApiMessageType api : ApiMessageType.values()) {
            if (!api.listeners().contains(ApiMessageType.ListenerType.BROKER)) {
                continue;
            }
            for (int kind = 0; kind <= 1; kind++) {
                short low = api.lowestSupportedVersion();
                short high = api.highestSupportedVersion(true);
                for (short version = low; version <= high; version++) {
                    for (Shape shape : Shape.values()) {
                        counter = 0;
                        ApiMessage message = kind == 0 ? api.newRequest() : api.newResponse();
                        if (shape != Shape.DEFAULTS) {
                            fill(message, version, shape);
                        }
                        byte[] bytes = bytes(message, version);
                        if (bytes == null) {
                            if (shape == Shape.DEFAULTS) {
                                continue;
                            }
                            throw new IllegalStateException(api + " v" + version + " " + shape);
                        }
                        out.writeShort(api.apiKey());
                        out.writeShort(version);
                        out.writeByte(kind);
                        out.writeByte(shape.ordinal());
                        out.writeInt(bytes.length);
                        out.write(bytes);
                        entries++;
                    }
                }
            }
        }
        try (OutputStream file = new FileOutputStream(args[0]);
                GZIPOutputStream gzip = new GZIPOutputStream(file) {{ def.setLevel(9); }}) {
            plain.writeTo(gzip);
        }
        System.out.println(entries + " entries, " + plain.size() + " bytes before compression");
    }

    /** Null when the message can't be written in that version. */
    private static byte[] bytes(Message message, short version) {
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            if (buffer.hasRemaining()) {
                throw new IllegalStateException(message.getClass() + " wrote less than its size");
            }
            return buffer.array();
        } catch (UnsupportedVersionException | NullPointerException e) {
            return null;
        }
    }

    /** Sets every field to a value of the shape, as far as the version takes it. */
    private static void fill(Message target, short version, Shape shape) throws Exception {
        for (Field field : target.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())
                    || field.getName().startsWith("_")
                    || field.getName().equals("next")
                    || field.getName().equals("prev")) {
                continue;
            }
            field.setAccessible(true);
            Object before = field.get(target);
            // Ids are never null on the wire, though Java wouldn't notice in a version without them.
            boolean nullable = !field.getType().isPrimitive() && field.getType() != Uuid.class;
            if (shape == Shape.NULLS && nullable && takes(target, field, null, version)) {
                field.set(target, null);
                continue;
            }
            Object value = value(field.getType(), field.getGenericType(), version, shape);
            field.set(target, takes(target, field, value, version) ? value : before);
        }
    }

    /** Whether an otherwise default struct with that value can be written in that version. */
    private static boolean takes(Message target, Field field, Object value, short version) throws Exception {
        Message probe = target.getClass().getConstructor().newInstance();
        // Defaults that the version itself refuses must not hide what this field does.
        for (Field other : target.getClass().getDeclaredFields()) {
            if (!Modifier.isStatic(other.getModifiers()) && !other.getType().isPrimitive()) {
                other.setAccessible(true);
                if (other.get(probe) == null && !other.getName().startsWith("_")) {
                    Object already = other.get(target);
                    other.set(probe, already);
                }
            }
        }
        field.set(probe, value);
        return bytes(probe, version) != null;
    }

    private static Object value(Class<?> type, Type generic, short version, Shape shape) throws Exception {
        int n = ++counter;
        if (type == boolean.class) {
            // Either value is the default of some field; both shapes together cover both.
            return (n % 2 == 0) == (shape == Shape.FILLED);
        } else if (type == byte.class) {
            return (byte) (n % 2 == 0 ? n % 100 + 4 : -(n % 100) - 2);
        } else if (type == short.class) {
            return (short) (n % 2 == 0 ? 0x1200 + n : -n - 0x300);
        } else if (type == int.class) {
            // Unsigned 16-bit fields are ints in Java, so stay in their range with every third.
            return n % 3 == 0 ? 40000 + n : n % 3 == 1 ? 1 + n : 1000 + n;
        } else if (type == long.class) {
            return n % 2 == 0 ? 0x0102030405060708L + n : -1000000000000L - n;
        } else if (type == double.class) {
            return n * -1234.5678;
        } else if (type == String.class) {
            return text(n);
        } else if (type == Uuid.class) {
            return new Uuid(0x1122334455667788L + n, -0x0102030405060708L - n);
        } else if (type == byte[].class) {
            return data(n).array();
        } else if (type == ByteBuffer.class) {
            return data(n);
        } else if (BaseRecords.class.isAssignableFrom(type)) {
            return MemoryRecords.readableRecords(data(n));
        } else if (Message.class.isAssignableFrom(type)) {
            Message nested = (Message) type.getConstructor().newInstance();
            fill(nested, version, shape);
            return nested;
        } else if (Collection.class.isAssignableFrom(type)) {
            return collection(type, generic, version, shape);
        }
        throw new IllegalStateException("no value for " + type);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object collection(Class<?> type, Type generic, short version, Shape shape) throws Exception {
        Collection values;
        Class<?> element;
        if (ImplicitLinkedHashCollection.class.isAssignableFrom(type)) {
            values = (Collection) type.getConstructor().newInstance();
            element = (Class<?>) ((ParameterizedType) type.getGenericSuperclass()).getActualTypeArguments()[0];
        } else {
            values = new ArrayList<>();
            Type argument = ((ParameterizedType) generic).getActualTypeArguments()[0];
            element = (Class<?>) argument;
        }
        Class<?> primitive = PRIMITIVES.getOrDefault(element, element);
        for (int i = 0; i < 2; i++) {
            values.add(value(primitive, primitive, version, shape));
        }
        return values;
    }

    private static final Map<Class<?>, Class<?>> PRIMITIVES = new HashMap<>();

    static {
        PRIMITIVES.put(Byte.class, byte.class);
        PRIMITIVES.put(Short.class, short.class);
        PRIMITIVES.put(Integer.class, int.class);
        PRIMITIVES.put(Long.class, long.class);
        PRIMITIVES.put(Boolean.class, boolean.class);
    }

    /** Some are beyond ASCII, and some are so long that a compact length takes two bytes. */
    private static String text(int n) {
        switch (n % 8) {
            case 0: return "größe-" + n;
            case 1: return "流-" + n;
            case 2: return "x".repeat(130) + n;
            case 3: return "🦀" + n;
            default: return "text-" + n;
        }
    }

    private static ByteBuffer data(int n) {
        int length = n % 4 == 0 ? 200 : n % 13 + 1;
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (n + 31 * i);
        }
        return ByteBuffer.wrap(bytes);
    }
}
