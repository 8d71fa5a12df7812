import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams' side of the benchmark of restoring: a count by key whose store is filled from its changelog.
 *
 * <p>Arguments: application id, bootstrap servers, state folder, input. Prints how many milliseconds passed from the
 * start to the moment at which all tasks run, and the CPU milliseconds of the process up to then.
 */
final class Restore {
  private Restore() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[0]);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);

    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[3], Consumed.with(Serdes.Long(), Serdes.Long()))
        .groupByKey(Grouped.with(Serdes.Long(), Serdes.Long()))
        .count(Materialized.<Long, Long, KeyValueStore<Bytes, byte[]>>as("counts")
            .withKeySerde(Serdes.Long())
            .withValueSerde(Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch running = new CountDownLatch(1);
    streams.setStateListener((now, before) -> {
      if (now == KafkaStreams.State.RUNNING) {
        running.countDown();
      }
    });
    long begin = System.nanoTime();
    streams.start();
    running.await();
    long wall = (System.nanoTime() - begin) / 1_000_000;
    long cpu = ProcessHandle.current().info().totalCpuDuration().orElseThrow().toMillis();
    System.out.println(wall + " " + cpu);
    System.out.flush();
    streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    System.exit(0);
  }
}
