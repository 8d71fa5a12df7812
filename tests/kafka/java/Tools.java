import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs console tools of Kafka one after the other in one JVM. A line of standard input is a tool: its class, its input and
 * its arguments, each in base64, with spaces between them. The answer is a line too: its exit status, output and errors.
 */
public final class Tools {
  private static final class Ended extends Error {}

  private static int status;

  public static void main(String[] none) throws Exception {
    PrintStream answers = System.out;
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    Exit.setExitProcedure((code, message) -> end(code));
    Exit.setHaltProcedure((code, message) -> end(code));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = Arrays.stream(line.split(" ", -1)).map(Tools::decoded).toArray(String[]::new);
      ByteArrayOutputStream output = new ByteArrayOutputStream();
      ByteArrayOutputStream errors = new ByteArrayOutputStream();
      System.setOut(new PrintStream(output, true));
      System.setErr(new PrintStream(errors, true));
      System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
      run(words[0], Arrays.copyOfRange(words, 2, words.length));
      answers.println(status + " " + encoded(output) + " " + encoded(errors));
      answers.flush();
    }
  }

  private static void run(String tool, String[] arguments) throws Exception {
    status = -1;
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
    } catch (InvocationTargetException error) {
      if (!(error.getCause() instanceof Ended)) {
        error.getCause().printStackTrace();
        end(1, false);
      }
    }
    end(0, false);
  }

  private static void end(int code) {
    end(code, true);
  }

  /** The first exit counts: a tool that catches everything takes the end itself for a failure. */
  private static void end(int code, boolean throwing) {
    status = status == -1 ? code : status;
    if (throwing) {
      throw new Ended();
    }
  }

  private static String decoded(String word) {
    return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
  }

  private static String encoded(ByteArrayOutputStream bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }
}
