import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's share consumer as a member of a group: prints each record that it gets as "partition offset deliveries value".
 *
 * <p>It accepts records whose value does not begin with "again", and releases these at their first delivery; it rejects
 * those that begin with "bad".
 */
public class ShareMember {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[1],
            "share.acknowledgement.mode", "explicit",
            "max.poll.records", 5,
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(args[2]));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    short deliveries = record.deliveryCount().get();
                    System.out.println(
                        record.partition() + " " + record.offset() + " " + deliveries + " " + record.value());
                    boolean again = record.value().startsWith("again") && deliveries == 1;
                    boolean bad = record.value().startsWith("bad");
                    consumer.acknowledge(
                        record, again ? AcknowledgeType.RELEASE : bad ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                }
                System.out.flush();
                consumer.commitSync();
            }
        }
    }
}
