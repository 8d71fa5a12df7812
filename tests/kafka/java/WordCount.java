import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count in a streams group (KIP-1071), with a repartition topic and a changelog.
 *
 * Arguments: input topic, application id, bootstrap servers, state folder, processing guarantee, output topic.
 */
public final class WordCount {
  private WordCount() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);
    settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    // The group has its session: a member may not have one.
    settings.remove(StreamsConfig.consumerPrefix("session.timeout.ms"));
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[0], Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(Named.as("counts"), Materialized.as("counts"))
        .toStream()
        .to(arguments[5], Produced.with(Serdes.String(), Serdes.Long()));
    Application.run(builder, settings);
  }
}
