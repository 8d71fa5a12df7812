import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams' side of test_takeover.py: one topology by name, until SIGTERM; takeover.py has the same topologies.
 *
 * <p>Arguments: topology, application id, bootstrap servers, state folder, processing guarantee. The topics begin with
 * the application id: ID-left, ID-right, ID-output.
 */
final class Takeover {
  private static final Serde<String> TEXT = Serdes.String();
  private static final Serde<Long> LONG = Serdes.Long();
  private static final Duration SIZE = Duration.ofSeconds(10);
  private static final Duration GRACE = Duration.ofSeconds(5);
  private static final JoinWindows WINDOWS = JoinWindows.ofTimeDifferenceAndGrace(SIZE, GRACE);
  private static final StreamJoined<String, String, String> PAIRS =
      StreamJoined.with(TEXT, TEXT, TEXT).withName("pairs").withStoreName("pairs");

  private Takeover() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);
    // Members that are killed are missed soon.
    settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
    // What has passed through internal topics is compared too.
    settings.put("repartition.purge.interval.ms", 3_600_000);
    // Results that are due come with the next record, not with the first one of the next second.
    settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);

    StreamsBuilder builder = new StreamsBuilder();
    declare(builder, arguments[0], arguments[1]);
    Application.run(builder, settings);
  }

  private static void declare(StreamsBuilder builder, String topology, String id) {
    String left = id + "-left";
    String right = id + "-right";
    String output = id + "-output";
    switch (topology) {
      case "fk-inner" ->
          table(builder, left)
              .join(table(builder, right), Takeover::reference, Takeover::both)
              .toStream()
              .to(output, Produced.with(TEXT, TEXT));
      case "fk-left" ->
          table(builder, left)
              .leftJoin(table(builder, right), Takeover::reference, Takeover::both)
              .toStream()
              .to(output, Produced.with(TEXT, TEXT));
      case "counts" ->
          stream(builder, left)
              .groupByKey()
              .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
              .toStream()
              .to(output, Produced.with(TEXT, LONG));
      case "tumbling" ->
          stream(builder, left)
              .groupByKey()
              .windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE))
              .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("tumbling"))
              .toStream()
              .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis()), LONG));
      case "sessions" ->
          stream(builder, left)
              .groupByKey()
              .windowedBy(SessionWindows.ofInactivityGapAndGrace(SIZE, Duration.ofMinutes(1)))
              .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions"))
              .toStream()
              .to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG));
      case "versioned" ->
          builder
              .table(
                  left,
                  Consumed.with(TEXT, TEXT),
                  Materialized.<String, String>as(
                      Stores.persistentVersionedKeyValueStore("versions", Duration.ofHours(1))))
              .toStream()
              .to(output, Produced.with(TEXT, TEXT));
      case "suppressed" ->
          stream(builder, left)
              .groupByKey()
              .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
              .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withValueSerde(LONG))
              .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("held"))
              .toStream()
              .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis()), LONG));
      case "grace" ->
          stream(builder, left)
              .leftJoin(
                  builder.table(
                      right,
                      Consumed.with(TEXT, TEXT),
                      Materialized.<String, String>as(
                          Stores.persistentVersionedKeyValueStore("versions", Duration.ofHours(1)))),
                  Takeover::both,
                  Joined.with(TEXT, TEXT, TEXT, "late", GRACE))
              .to(output, Produced.with(TEXT, TEXT));
      case "outer" ->
          stream(builder, left)
              .outerJoin(stream(builder, right), Takeover::both, WINDOWS, PAIRS)
              .to(output, Produced.with(TEXT, TEXT));
      case "left" ->
          stream(builder, left)
              .leftJoin(stream(builder, right), Takeover::both, WINDOWS, PAIRS)
              .to(output, Produced.with(TEXT, TEXT));
      case "seen" -> {
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), TEXT, TEXT));
        stream(builder, left).process(Seen::new, "seen").to(output, Produced.with(TEXT, TEXT));
      }
      case "headed" -> {
        builder.addStateStore(
            Stores.timestampedKeyValueStoreWithHeadersBuilder(
                Stores.persistentTimestampedKeyValueStoreWithHeaders("headed"), TEXT, TEXT));
        stream(builder, left).process(Headed::new, "headed").to(output, Produced.with(TEXT, TEXT));
      }
      default -> throw new IllegalArgumentException("no topology " + topology);
    }
  }

  private static KTable<String, String> table(StreamsBuilder builder, String topic) {
    return builder.table(topic, Consumed.with(TEXT, TEXT));
  }

  private static KStream<String, String> stream(StreamsBuilder builder, String topic) {
    return builder.stream(topic, Consumed.with(TEXT, TEXT));
  }

  /** The key of the right row: what is before the slash, null if there is nothing. */
  private static String reference(String value) {
    int end = value.indexOf('/');
    return end <= 0 ? null : value.substring(0, end);
  }

  private static String both(String left, String right) {
    return left + "|" + right;
  }

  /** Forwards the value that was seen before; a value without a reference forgets the key. */
  private static final class Seen implements Processor<String, String, String, String> {
    private ProcessorContext<String, String> context;
    private KeyValueStore<String, String> seen;

    @Override
    public void init(ProcessorContext<String, String> context) {
      this.context = context;
      seen = context.getStateStore("seen");
    }

    @Override
    public void process(Record<String, String> record) {
      String before = seen.get(record.key());
      seen.put(record.key(), record.value() == null || reference(record.value()) == null ? null : record.value());
      context.forward(record.withValue(before + ">" + record.value()));
    }
  }

  /** As Seen, with a header beside the value: forwards the headers that were seen before. */
  private static final class Headed implements Processor<String, String, String, String> {
    private ProcessorContext<String, String> context;
    private TimestampedKeyValueStoreWithHeaders<String, String> seen;

    @Override
    public void init(ProcessorContext<String, String> context) {
      this.context = context;
      seen = context.getStateStore("headed");
    }

    @Override
    public void process(Record<String, String> record) {
      ValueTimestampHeaders<String> before = seen.get(record.key());
      String found = before == null ? null : before.value();
      if (before != null) {
        for (Header header : before.headers()) {
          found += "," + header.key() + "=" + (header.value() == null ? null : new String(header.value(), UTF_8));
        }
      }
      boolean isForgotten = record.value() == null || reference(record.value()) == null;
      RecordHeaders headers = new RecordHeaders();
      if (!isForgotten && !record.value().contains("d")) {
        headers.add("from", record.value().getBytes(UTF_8)).add("empty", new byte[0]).add("nothing", null);
      }
      seen.put(
          record.key(), isForgotten ? null : ValueTimestampHeaders.make(record.value(), record.timestamp(), headers));
      context.forward(record.withValue(found + ">" + record.value()));
    }
  }
}
