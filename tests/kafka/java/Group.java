import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams' members of test_streams_groups.py, until SIGTERM: words counted, joined with a table, and in windows.
 *
 * <p>Arguments: none ("-"), application id, bootstrap servers, state folder, processing guarantee.
 */
final class Group {
  private static final Serde<String> TEXT = Serdes.String();
  private static final Serde<Long> NUMBER = Serdes.Long();

  private Group() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);
    // The broker sets the sessions of members.
    settings.remove(StreamsConfig.consumerPrefix("session.timeout.ms"));
    settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    String name = arguments[1];
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> words = builder.stream(name + "-lines", Consumed.with(TEXT, TEXT))
        .flatMapValues(line -> Arrays.asList(line.split(" ")));
    KTable<String, Long> counts = words.groupBy((key, word) -> word, Grouped.with("words", TEXT, TEXT))
        .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counted").withValueSerde(NUMBER));
    counts.toStream().to(name + "-counts", Produced.with(TEXT, NUMBER));
    KTable<String, String> table = builder.table(name + "-table", Consumed.with(TEXT, TEXT),
        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("table"));
    counts.toStream().join(table, (count, value) -> count + value).to(name + "-joined", Produced.with(TEXT, TEXT));
    words.groupBy((key, word) -> word, Grouped.with("windows", TEXT, TEXT))
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
        .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windowed")
            .withRetention(Duration.ofMinutes(5)));
    Application.run(builder, settings);
  }
}
