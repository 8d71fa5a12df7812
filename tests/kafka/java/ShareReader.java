import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a share group that does what it is told on its input, one word or two a line, and says what it got. */
public class ShareReader {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[3]);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("max.poll.records", arguments.length > 4 ? arguments[4] : "500");
        Map<Long, ConsumerRecord<String, String>> held = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings);
                BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            consumer.subscribe(List.of(arguments[2]));
            System.out.println("ready");
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ");
                try {
                    obey(consumer, held, words);
                    System.out.println("done " + line);
                } catch (RuntimeException error) {
                    System.out.println("failed " + line + ": " + error);
                }
            }
        }
        System.out.println("closed");
    }

    private static void obey(
            KafkaShareConsumer<String, String> consumer,
            Map<Long, ConsumerRecord<String, String>> held,
            String[] words) {
        switch (words[0]) {
            case "poll" -> {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    held.put(record.offset(), record);
                    System.out.println("record " + record.value() + " " + record.offset() + " "
                            + record.deliveryCount().orElse((short) -1));
                }
            }
            case "commit" -> consumer.commitSync().forEach((partition, error) ->
                    System.out.println("committed " + partition + " " + error.map(Object::toString).orElse("well")));
            default -> consumer.acknowledge(
                    held.get(Long.parseLong(words[1])), AcknowledgeType.valueOf(words[0].toUpperCase()));
        }
    }
}
