import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer of test_rolling.py, until SIGTERM: it says what it owns, and which records it has read and committed.
 *
 * <p>Arguments: bootstrap servers, topic, group, settings as key=value.
 */
final class Rolling implements ConsumerRebalanceListener {
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final Map<TopicPartition, long[]> read = new HashMap<>();

  private Rolling(KafkaConsumer<byte[], byte[]> consumer) {
    this.consumer = consumer;
  }

  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("group.id", arguments[2]);
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest");
    for (int index = 3; index < arguments.length; index++) {
      String[] pair = arguments[index].split("=", 2);
      settings.put(pair[0], pair[1]);
    }
    KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    CountDownLatch closed = new CountDownLatch(1);
    AtomicBoolean isStopped = new AtomicBoolean();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      isStopped.set(true);
      try {
        closed.await();
      } catch (InterruptedException error) {
        error.printStackTrace();
      }
      Runtime.getRuntime().halt(0);
    }));
    new Rolling(consumer).run(arguments[1], isStopped);
    closed.countDown();
    Thread.currentThread().join();
  }

  private void run(String topic, AtomicBoolean isStopped) {
    consumer.subscribe(List.of(topic), this);
    int owned = -1;
    while (!isStopped.get()) {
      ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
      for (ConsumerRecord<byte[], byte[]> record : records) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        read.computeIfAbsent(partition, any -> new long[] {record.offset(), 0})[1] = record.offset() + 1;
      }
      try {
        commit(List.copyOf(read.keySet()));
      } catch (RebalanceInProgressException | CommitFailedException error) {
        // The next poll says what is lost; what is not is committed again.
      }
      if (owned != consumer.assignment().size()) {
        owned = consumer.assignment().size();
        System.out.println("owns " + owned);
      }
    }
    consumer.close();
  }

  private void commit(Collection<TopicPartition> partitions) {
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    for (TopicPartition partition : partitions) {
      if (read.containsKey(partition)) {
        offsets.put(partition, new OffsetAndMetadata(read.get(partition)[1]));
      }
    }
    if (offsets.isEmpty()) {
      return;
    }
    consumer.commitSync(offsets);
    StringBuilder line = new StringBuilder();
    for (TopicPartition partition : offsets.keySet()) {
      long[] range = read.remove(partition);
      line.append("read ").append(partition.partition()).append(' ').append(range[0]).append(' ').append(range[1]);
      line.append('\n');
    }
    System.out.print(line);
    System.out.flush();
  }

  @Override
  public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
    try {
      commit(partitions);
    } catch (CommitFailedException error) {
      read.keySet().removeAll(partitions);
    }
  }

  @Override
  public void onPartitionsLost(Collection<TopicPartition> partitions) {
    read.keySet().removeAll(partitions);
  }

  @Override
  public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
}
