import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A member of test_streams_groups.py that copies lines, asks all members to shut down at the line "java fails", and ends
 * when it has shut down.
 *
 * <p>Arguments: those of Application.
 */
final class Shutdown {
  private Shutdown() {}

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = Application.settings(arguments);
    // The broker sets the sessions of members.
    settings.remove(StreamsConfig.consumerPrefix("session.timeout.ms"));
    settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    String name = arguments[1];
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(name + "-lines", Consumed.with(Serdes.String(), Serdes.String()))
        .peek((key, line) -> {
          if (line.equals("java fails")) {
            throw new IllegalArgumentException(line);
          }
        })
        .to(name + "-counts", Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch end = new CountDownLatch(1);
    streams.setStateListener((now, before) -> {
      System.out.println("state " + now);
      if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
        end.countDown();
      }
    });
    streams.setUncaughtExceptionHandler(error -> {
      System.out.println("asks for a shutdown: " + error.getMessage());
      return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
    });
    streams.start();
    end.await();
    streams.close();
  }
}
