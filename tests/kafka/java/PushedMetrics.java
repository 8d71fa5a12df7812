import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Writes each push that a broker takes as a line: client id, instance id, whether it is the last, and the metrics. */
public final class PushedMetrics implements MetricsReporter, ClientTelemetry {
    private Path file;

    @Override
    public void configure(Map<String, ?> settings) {
        file = Path.of((String) settings.get("pushed.metrics.file"));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            var data = payload.data().duplicate();
            var bytes = new byte[data.remaining()];
            data.get(bytes);
            var line = context.clientId() + " " + payload.clientInstanceId() + " " + payload.isTerminating() + " "
                + HexFormat.of().formatHex(bytes) + "\n";
            try {
                Files.writeString(file, line, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) { }

    @Override
    public void metricChange(KafkaMetric metric) { }

    @Override
    public void metricRemoval(KafkaMetric metric) { }

    @Override
    public void close() { }
}
