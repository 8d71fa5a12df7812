import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams' side of test_interop.py: one small topology by name, from one topic to another, until SIGTERM.
 *
 * <p>Arguments: topology, application id, bootstrap servers, state folder, processing guarantee, input, output.
 * "counts", "tumbling" and "sessions" read lines and count their words; "table", "read-tumbling" and
 * "read-sessions" read such counts and write them as text, as key or key@start/end. Keys are strings, counts longs.
 */
final class Interop {
  private static final Duration SIZE = Duration.ofSeconds(10);
  private static final Serde<String> TEXT = Serdes.String();
  private static final Serde<Long> LONG = Serdes.Long();

  private Interop() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);

    StreamsBuilder builder = new StreamsBuilder();
    declare(builder, arguments[0], arguments[5], arguments[6]);
    Application.run(builder, settings);
  }

  private static void declare(StreamsBuilder builder, String topology, String input, String output) {
    switch (topology) {
      case "counts" ->
          words(builder, input)
              .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("word-counts"))
              .toStream()
              .to(output, Produced.with(TEXT, LONG));
      case "tumbling" ->
          words(builder, input)
              .windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE))
              .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("word-counts"))
              .toStream()
              .to(output, Produced.with(tumbling(), LONG));
      case "sessions" ->
          words(builder, input)
              .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(SIZE))
              .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("word-counts"))
              .toStream()
              .to(output, Produced.with(sessions(), LONG));
      case "table" ->
          asText(builder.table(input, Consumed.with(TEXT, LONG)).toStream(), output);
      case "read-tumbling" ->
          asText(builder.stream(input, Consumed.with(tumbling(), LONG)).selectKey((key, count) -> name(key)), output);
      case "read-sessions" ->
          asText(builder.stream(input, Consumed.with(sessions(), LONG)).selectKey((key, count) -> name(key)), output);
      default -> throw new IllegalArgumentException("no topology " + topology);
    }
  }

  private static KGroupedStream<String, String> words(StreamsBuilder builder, String input) {
    return builder.stream(input, Consumed.with(TEXT, TEXT))
        .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
        .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT));
  }

  private static Serde<Windowed<String>> tumbling() {
    return WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis());
  }

  private static Serde<Windowed<String>> sessions() {
    return WindowedSerdes.sessionWindowedSerdeFrom(String.class);
  }

  private static String name(Windowed<String> key) {
    return key.key() + "@" + key.window().start() + "/" + key.window().end();
  }

  private static void asText(KStream<String, Long> counts, String output) {
    counts.mapValues(count -> String.valueOf(count)).to(output, Produced.with(TEXT, TEXT));
  }
}
