import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** An application of Kafka Streams as the tests start it: its settings from arguments, and its run until SIGTERM. */
final class Application {
  private Application() {}

  /** Settings from arguments 1 to 4: application id, bootstrap servers, state folder, processing guarantee. */
  static Properties settings(String[] arguments) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[2]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[4]);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    // Nobody is removed from the group for being slow: records would be processed twice.
    settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 300000);
    return settings;
  }

  /** Run a topology; a failure ends the process. */
  static void run(StreamsBuilder builder, Properties settings) throws InterruptedException {
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setStateListener((now, before) -> System.out.println("state " + now));
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
      return null;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      // A JVM that SIGTERM ends has status 143; a clean close is status 0 here.
      // The group knows at once that the member is gone.
      CloseOptions options = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
      boolean isClosed = streams.close(options.withTimeout(Duration.ofSeconds(30)));
      System.out.println("closed " + isClosed);
      System.out.flush();
      Runtime.getRuntime().halt(isClosed ? 0 : 1);
    }));
    streams.start();
    Thread.currentThread().join();
  }
}
