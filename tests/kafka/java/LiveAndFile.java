import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * The topologies of tests/bench/live_and_file.py: CASE SERVERS FOLDER THREADS TASKS.
 *
 * It pauses when each thread has tasks, whose topics are still empty, and goes on when the folder has the file "filled":
 * a paused application that has not run yet does not tell its tasks.
 */
public class LiveAndFile {
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<Long> NUMBER = Serdes.Long();

    static void perHour(StreamsBuilder builder, String prefix, int groups, Duration grace) {
        builder.stream("events", Consumed.with(TEXT, NUMBER))
            .groupBy((key, value) -> prefix + value % groups, Grouped.with("by", TEXT, NUMBER))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), grace))
            .count()
            .toStream()
            .to("results", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 3_600_000L), NUMBER));
    }

    static void counted(KStream<String, Long> stream, boolean isAlert) {
        stream.groupByKey(Grouped.with(TEXT, NUMBER)).count().toStream()
            .filter((key, count) -> !isAlert || count == 3).to("results", Produced.with(TEXT, NUMBER));
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "live-and-file");
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("state.dir", Path.of(arguments[2], "state").toString());
        settings.put("num.stream.threads", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, Long> typed = Consumed.with(TEXT, NUMBER);
        switch (arguments[0]) {
            case "backlog" -> perHour(builder, "g", 7, Duration.ofMinutes(10));
            case "game" -> perHour(builder, "region-", 5, Duration.ofMinutes(30));
            case "alert" -> counted(builder.stream("events", typed), true);
            case "merge" -> counted(builder.stream("events", typed).merge(builder.stream("others", typed)), false);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        if (!arguments[0].equals("alert")) {
            // All updates, as from files; the alert is a case of the defaults.
            settings.put("statestore.cache.max.bytes", "0");
            settings.put("commit.interval.ms", "100");
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            double dropped = streams.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("dropped-records-total"))
                .mapToDouble(metric -> ((Number) metric.metricValue()).doubleValue()).sum();
            streams.close(Duration.ofSeconds(60));
            System.out.println("dropped " + (long) dropped);
            ended.countDown();
        }));
        streams.start();
        TreeMap<String, String> spread = new TreeMap<>();
        int tasks = 0;
        while (tasks < Integer.parseInt(arguments[4]) || spread.containsValue("[]")) {
            Thread.sleep(20);
            spread.clear();
            tasks = 0;
            for (var thread : streams.metadataForLocalThreads()) {
                tasks += thread.activeTasks().size();
                spread.put(thread.threadName(), thread.activeTasks().stream().map(task -> task.taskId().toString()).sorted().toList().toString());
            }
        }
        streams.pause();
        System.out.println("spread " + spread.values());
        while (!Files.exists(Path.of(arguments[2], "filled"))) Thread.sleep(20);
        streams.resume();
        ended.await();
    }
}
