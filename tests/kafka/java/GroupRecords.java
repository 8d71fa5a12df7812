import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/**
 * Reads records of __consumer_offsets as Kafka's coordinator does, and writes them again.
 *
 * Each line of the input is a key and a value in hexadecimal, or "-" for no value; so is each line of the output.
 */
public final class GroupRecords {
  private GroupRecords() {}

  public static void main(String[] arguments) {
    GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    HexFormat hex = HexFormat.of();
    Scanner input = new Scanner(System.in);
    while (input.hasNext()) {
      ByteBuffer key = ByteBuffer.wrap(hex.parseHex(input.next()));
      String text = input.next();
      ByteBuffer value = text.equals("-") ? null : ByteBuffer.wrap(hex.parseHex(text));
      CoordinatorRecord read = serde.deserialize(key, value);
      byte[] written = serde.serializeValue(read);
      String again = written == null ? "-" : hex.formatHex(written);
      System.out.println(hex.formatHex(serde.serializeKey(read)) + " " + again);
    }
  }
}
