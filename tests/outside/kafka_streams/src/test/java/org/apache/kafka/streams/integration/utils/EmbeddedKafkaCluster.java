package org.apache.kafka.streams.integration.utils;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.test.TestUtils;

import java.io.BufferedReader;
import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * The cluster of Kafka's integration tests, of which this has the name and the methods: one {@code streams broker},
 * started with the settings that a test has for its brokers.
 *
 * <p>Environment: {@code STREAMS} is the command, one argument a line; {@code BOOTSTRAP} a broker that runs instead.
 * The property {@code group.protocol} is the protocol of groups for applications that do not name one.
 */
public class EmbeddedKafkaCluster {
    /** Settings that are not handed on, and why. */
    private static final Map<String, String> IGNORED = Map.ofEntries(
        Map.entry("offsets.topic.num.partitions", "the broker has one coordinator, whose topic is not partitioned"),
        Map.entry("transaction.state.log.num.partitions", "the same"),
        Map.entry("offsets.topic.replication.factor", "there is one broker"),
        Map.entry("transaction.state.log.replication.factor", "the same"),
        Map.entry("transaction.state.log.min.isr", "the same"),
        Map.entry("file.delete.delay.ms", "files are deleted at once"),
        Map.entry("log.retention.hours", "tests set that there is no limit, which is the default here"),
        Map.entry("log.initial.task.delay.ms", "maintenance begins with its first interval"),
        Map.entry("delete.topic.enable", "topics may always be deleted"),
        Map.entry("log.cleaner.dedupe.buffer.size", "compaction reserves no memory"));
    /** What Kafka's class sets if a test does not, and delays that Kafka's brokers have and ours has not. */
    private static final Map<String, String> DEFAULTS = Map.of(
        "group.min.session.timeout.ms", "0",
        "group.initial.rebalance.delay.ms", "0",
        "group.streams.min.session.timeout.ms", "100",
        "group.streams.min.heartbeat.interval.ms", "100",
        "group.streams.initial.rebalance.delay.ms", "3000",
        "group.streams.assignment.interval.ms", "1000",
        "group.consumer.assignment.interval.ms", "1000",
        "auto.create.topics.enable", "true");

    /** What applications of classic groups set themselves, and the broker sets for groups of this protocol. */
    private static final Map<String, String> OF_STREAMS = Map.of(
        "group.streams.heartbeat.interval.ms", "500",
        "group.streams.session.timeout.ms", "10000",
        "group.streams.num.standby.replicas", "1");

    static {
        final String protocol = System.getProperty("group.protocol", "");
        if (!protocol.isEmpty()) {
            try {
                final Field definitions = StreamsConfig.class.getDeclaredField("CONFIG");
                final Field value = ConfigDef.ConfigKey.class.getField("defaultValue");
                definitions.setAccessible(true);
                value.setAccessible(true);
                value.set(((ConfigDef) definitions.get(null)).configKeys().get(StreamsConfig.GROUP_PROTOCOL_CONFIG), protocol);
            } catch (final ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private final Map<String, String> settings = new TreeMap<>(DEFAULTS);
    private Process process;
    private String address = System.getenv("BOOTSTRAP");
    public final MockTime time;

    public EmbeddedKafkaCluster(final int brokers) {
        this(brokers, new Properties());
    }

    public EmbeddedKafkaCluster(final int brokers, final Properties settings) {
        this(brokers, settings, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(final int brokers, final Properties settings, final long startMs) {
        this(brokers, settings, Map.of(), startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(final int brokers, final Properties settings, final Map<Integer, Map<String, String>> each) {
        this(brokers, settings, each, System.currentTimeMillis(), System.nanoTime());
    }

    /** There is one broker: settings of single brokers, which are their racks, are not handed on. */
    public EmbeddedKafkaCluster(final int brokers, final Properties settings, final Map<Integer, Map<String, String>> each,
                                final long startMs, final long startNs) {
        if (System.getProperty("group.protocol", "").equals("streams")) {
            this.settings.putAll(OF_STREAMS);
        }
        settings.forEach((name, value) -> this.settings.put(name.toString(), value.toString()));
        this.settings.keySet().removeAll(IGNORED.keySet());
        time = new MockTime(startMs, startNs);
    }

    public void start() {
        if (address != null) {
            return;
        }
        final List<String> command = new ArrayList<>(List.of(System.getenv("STREAMS").split("\n")));
        command.addAll(List.of("broker", "--listen", "127.0.0.1:0"));
        settings.forEach((name, value) -> command.addAll(List.of("--set", name + "=" + value)));
        final CompletableFuture<String> listening = new CompletableFuture<>();
        try {
            process = new ProcessBuilder(command).redirectErrorStream(true).start();
            Runtime.getRuntime().addShutdownHook(new Thread(this::stop));
            final Thread reader = new Thread(() -> read(process.inputReader(), listening));
            reader.setDaemon(true);
            reader.start();
            address = listening.get(60, TimeUnit.SECONDS);
        } catch (final Exception e) {
            throw new IllegalStateException("no broker: " + command, e);
        }
    }

    /** Keeps what the broker says, and tells its address as soon as it does. */
    private void read(final BufferedReader lines, final CompletableFuture<String> listening) {
        final String folder = System.getProperty("build.folder", "target");
        try (PrintWriter log = new PrintWriter(new FileWriter(folder + "/broker.log", true), true)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                log.println(line);
                if (line.contains("listens on ")) {
                    listening.complete(line.replaceAll(".*listens on (\\S+:\\d+).*", "$1"));
                }
            }
        } catch (final IOException e) {
            listening.completeExceptionally(e);
        }
        listening.completeExceptionally(new IllegalStateException("the broker has ended; see broker.log"));
    }

    public void stop() {
        if (process != null) {
            process.destroy();
            try {
                if (!process.waitFor(10, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                }
            } catch (final InterruptedException e) {
                process.destroyForcibly();
            }
        }
    }

    public String bootstrapServers() {
        return address;
    }

    public boolean sslEnabled() {
        return false;
    }

    public Map<String, String> clientDefaultConfig() {
        return Map.of("bootstrap.servers", address);
    }

    public Admin createAdminClient() {
        return Admin.create(Map.of("bootstrap.servers", address));
    }

    // --- topics ---

    public void createTopics(final String... names) {
        for (final String name : names) {
            createTopic(name);
        }
    }

    public void createTopic(final String name) {
        createTopic(name, 1);
    }

    public void createTopic(final String name, final int partitions) {
        createTopic(name, partitions, 1);
    }

    public void createTopic(final String name, final int partitions, final int replicas) {
        createTopic(name, partitions, replicas, Map.of());
    }

    public void createTopic(final String name, final int partitions, final int replicas, final Map<String, String> configs) {
        final NewTopic topic = new NewTopic(name, partitions, (short) 1).configs(configs);
        ask(admin -> admin.createTopics(List.of(topic)).all(), TopicExistsException.class);
    }

    public void deleteTopic(final String name) {
        delete(List.of(name));
    }

    public void deleteTopics(final String... names) {
        for (final String name : names) {
            deleteTopic(name);
        }
    }

    public void deleteAllTopics() {
        delete(ask(admin -> admin.listTopics().names(), null));
    }

    private void delete(final Collection<String> names) {
        ask(admin -> admin.deleteTopics(names).all(), UnknownTopicOrPartitionException.class);
    }

    public Set<String> getAllTopicsInCluster() {
        return ask(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names(), null);
    }

    public void waitForRemainingTopics(final long timeoutMs, final String... names) throws InterruptedException {
        TestUtils.waitForCondition(() -> getAllTopicsInCluster().equals(Set.of(names)), timeoutMs, "other topics");
    }

    public Properties getLogConfig(final String name) {
        final ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        final Properties own = new Properties();
        for (final ConfigEntry entry : ask(admin -> admin.describeConfigs(List.of(topic)).values().get(topic), null).entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                own.put(entry.name(), entry.value());
            }
        }
        return own;
    }

    // --- groups ---

    public void setGroupSessionTimeout(final String group, final int timeoutMs) {
        setForGroup(group, "streams.session.timeout.ms", timeoutMs);
    }

    public void setGroupHeartbeatTimeout(final String group, final int intervalMs) {
        setForGroup(group, "streams.heartbeat.interval.ms", intervalMs);
    }

    public void setGroupStandbyReplicas(final String group, final int replicas) {
        setForGroup(group, "streams.num.standby.replicas", replicas);
    }

    public void setGroupStreamsInitialRebalanceDelay(final String group, final int delayMs) {
        setForGroup(group, "streams.initial.rebalance.delay.ms", delayMs);
    }

    private void setForGroup(final String group, final String name, final int value) {
        final ConfigEntry entry = new ConfigEntry(name, String.valueOf(value));
        ask(admin -> admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.GROUP, group),
            List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all(), null);
    }

    /** The answer to a question; null if it is an error that is accepted. */
    private <T> T ask(final Question<T> question, final Class<? extends Exception> accepted) {
        try (Admin admin = createAdminClient()) {
            return question.of(admin).get();
        } catch (final InterruptedException e) {
            throw new IllegalStateException(e);
        } catch (final ExecutionException e) {
            if (accepted == null || !accepted.isInstance(e.getCause())) {
                throw new IllegalStateException(e);
            }
            return null;
        }
    }

    private interface Question<T> {
        KafkaFuture<T> of(Admin admin);
    }
}
