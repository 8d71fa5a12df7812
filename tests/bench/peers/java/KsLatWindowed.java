// A tumbling count per key by Kafka Streams that carries the last record's `t` along, every update sent:
// KsLatWindowed INPUT OUTPUT.  Variables BOOTSTRAP, STATE (state directory), LINGER.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class KsLatWindowed {
  static final ObjectMapper JSON = new ObjectMapper();

  static byte[] write(Object value) {
    try { return value == null ? null : JSON.writeValueAsBytes(value); } catch (Exception e) { throw new RuntimeException(e); }
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> read(byte[] data) {
    try { return data == null ? null : JSON.readValue(data, Map.class); } catch (Exception e) { throw new RuntimeException(e); }
  }

  public static void main(String[] arguments) {
    Serde<Map<String, Object>> json = Serdes.serdeFrom((topic, value) -> write(value), (topic, data) -> read(data));
    Serde<String> text = Serdes.String();
    Properties settings = new Properties();
    settings.put("application.id", "kslatw-" + System.nanoTime());
    settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
    settings.put("state.dir", System.getenv("STATE"));
    settings.put("auto.offset.reset", "earliest");
    settings.put("statestore.cache.max.bytes", "0");
    settings.put("producer.linger.ms", System.getenv("LINGER"));
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[0], Consumed.with(text, json))
        .groupByKey(Grouped.with(text, json))
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
        .aggregate(HashMap::new, (key, value, seen) -> {
          Map<String, Object> next = new HashMap<>();
          next.put("count", ((Number) seen.getOrDefault("count", 0)).longValue() + 1);
          next.put("t", value.get("t"));
          return next;
        }, Materialized.with(text, json))
        .toStream((key, value) -> key.key() + "@" + key.window().start())
        .to(arguments[1], Produced.with(text, json));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
