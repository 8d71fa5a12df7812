import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams' side of test_handover.py: one topology by name, until SIGTERM.
 *
 * <p>Arguments: topology, application id, bootstrap servers, state folder, processing guarantee, left and right input,
 * output. Keys and values are strings; keys of windows are written as key@start/end.
 */
final class Handover {
  private static final Duration SIZE = Duration.ofSeconds(10);
  private static final Duration GRACE = Duration.ofSeconds(5);
  private static final Duration KEPT = Duration.ofMinutes(5);
  private static final Serde<String> TEXT = Serdes.String();

  private Handover() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);
    // Results that are due come with the next record, not with the first one of the next second.
    settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
    settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);

    StreamsBuilder builder = new StreamsBuilder();
    declare(builder, arguments[0], arguments[5], arguments[6], arguments[7]);
    Application.run(builder, settings);
  }

  private static void declare(StreamsBuilder builder, String topology, String left, String right, String output) {
    KStream<String, String> records = builder.stream(left, Consumed.with(TEXT, TEXT));
    KGroupedStream<String, String> grouped = records.groupByKey();
    switch (topology) {
      case "final-tumbling" ->
          write(grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
              .emitStrategy(EmitStrategy.onWindowClose()).count(counts()), output);
      case "final-hopping" ->
          write(grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(SIZE.dividedBy(4)))
              .emitStrategy(EmitStrategy.onWindowClose()).count(counts()), output);
      case "final-sliding" ->
          write(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))
              .emitStrategy(EmitStrategy.onWindowClose()).count(counts()), output);
      case "final-sessions" ->
          write(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(SIZE, GRACE))
              .emitStrategy(EmitStrategy.onWindowClose())
              .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("counts").withRetention(KEPT)), output);
      case "until-close" ->
          write(grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
              .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withValueSerde(Serdes.Long()))
              .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("held")), output);
      case "until-session-close" ->
          write(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(SIZE, GRACE))
              .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("counts").withValueSerde(Serdes.Long()))
              .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("held")), output);
      case "until-limit" ->
          grouped.reduce((one, two) -> two, Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("latest"))
              .suppress(Suppressed.<String>untilTimeLimit(SIZE, BufferConfig.maxRecords(20)).withName("held"))
              .toStream().to(output, Produced.with(TEXT, TEXT));
      case "grace" -> {
        KTable<String, String> table = builder.table(right, Consumed.with(TEXT, TEXT),
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions", Duration.ofHours(1))));
        records.leftJoin(table, Handover::both, Joined.with(TEXT, TEXT, TEXT, "late", GRACE))
            .to(output, Produced.with(TEXT, TEXT));
      }
      case "outer", "left" -> {
        KStream<String, String> others = builder.stream(right, Consumed.with(TEXT, TEXT));
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(SIZE, GRACE);
        StreamJoined<String, String, String> stores =
            StreamJoined.with(TEXT, TEXT, TEXT).withName("pairs").withStoreName("pairs");
        (topology.equals("outer")
                ? records.outerJoin(others, Handover::both, windows, stores)
                : records.leftJoin(others, Handover::both, windows, stores))
            .to(output, Produced.with(TEXT, TEXT));
      }
      default -> throw new IllegalArgumentException("no topology " + topology);
    }
  }

  private static Materialized<String, Long, WindowStore<Bytes, byte[]>> counts() {
    return Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withRetention(KEPT);
  }

  private static String both(String left, String right) {
    return left + "+" + right;
  }

  private static void write(KTable<Windowed<String>, Long> counts, String output) {
    counts.toStream()
        .map((key, count) -> new org.apache.kafka.streams.KeyValue<>(name(key), String.valueOf(count)))
        .to(output, Produced.with(TEXT, TEXT));
  }

  private static String name(Windowed<String> key) {
    return key.key() + "@" + key.window().start() + "/" + key.window().end();
  }
}
