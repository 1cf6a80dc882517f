// Java's kafka-clients in the matrix of clients, run from source; the jars on the class path say which version. `../README.md` says what
// each step does.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final int PARTITIONS = 3, RECORDS = 300, MORE = 30;
    static final String RETENTION = "7654321";
    // For everything that a step waits for.
    static final Duration LIMIT = Duration.ofSeconds(45), POLL = Duration.ofMillis(50);

    interface Step { String run() throws Exception; }

    static class Refused extends RuntimeException {
        Refused(String said) { super(said); }
    }

    final String bootstrap, data, admin, gone, group, transaction;

    Client(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        data = prefix + "-data";
        admin = prefix + "-admin";
        gone = prefix + "-gone";
        group = prefix + "-group";
        transaction = prefix + "-transaction";
    }

    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) options.put(arguments[i], arguments[i + 1]);
        Client client = new Client(options.get("--bootstrap"), options.get("--prefix"));
        boolean failed = false;
        for (String name : options.get("--steps").split(",")) {
            Step step = client.steps().get(name);
            try {
                if (step == null) tell(name, false, "the library has no call for it", ",\"absent\":true");
                else tell(name, true, step.run(), "");
            } catch (Refused refusal) {
                tell(name, false, refusal.getMessage(), ",\"refused\":true");
            } catch (Throwable error) {
                failed = true;
                error.printStackTrace();
                tell(name, false, error.toString(), "");
            }
        }
        System.exit(failed ? 1 : 0);
    }

    Map<String, Step> steps() {
        return Map.ofEntries(
            Map.entry("create", this::create), Map.entry("produce", this::produce), Map.entry("assign", this::assign),
            Map.entry("group", () -> members(group, Map.of())), Map.entry("resume", this::resume), Map.entry("topics", this::topics),
            Map.entry("configs", this::configs), Map.entry("partitions", this::partitions),
            Map.entry("delete-records", this::deleteRecords), Map.entry("delete-topic", this::deleteTopic),
            Map.entry("groups", this::groups), Map.entry("transactions", this::transactions), Map.entry("kip848", this::kip848));
    }

    String create() throws Exception {
        try (Admin client = admin()) {
            client.createTopics(List.of(new NewTopic(data, PARTITIONS, (short) 3))).all().get();
            until("all leaders", () -> described(client, data) != null);
            for (TopicPartitionInfo partition : described(client, data).partitions())
                check(partition.replicas().size() == 3, "replicas");
        }
        Properties about = new Properties();
        about.load(Admin.class.getResourceAsStream("/kafka/kafka-version.properties"));
        return "kafka-clients " + about.getProperty("version");
    }

    String produce() throws Exception {
        String[] codecs = {"none", "gzip", "snappy", "lz4", "zstd"};
        int part = RECORDS / codecs.length;
        for (int i = 0; i < codecs.length; i++) send(data, i * part, (i + 1) * part, codecs[i], -1);
        return String.join(" ", codecs);
    }

    String assign() {
        Map<Integer, List<String>> found = new HashMap<>();
        try (KafkaConsumer<String, String> reader = consumer(null, Map.of())) {
            List<TopicPartition> places = places();
            reader.assign(places);
            reader.seekToBeginning(places);
            int[] count = {0};
            until("all records", () -> {
                for (ConsumerRecord<String, String> record : reader.poll(POLL)) {
                    found.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(record.value());
                    count[0]++;
                }
                return count[0] >= RECORDS;
            });
        }
        for (int p = 0; p < PARTITIONS; p++) {
            int partition = p;
            List<String> wanted = IntStream.range(0, RECORDS).filter(i -> i % PARTITIONS == partition).mapToObj(i -> "v" + i).toList();
            check(wanted.equals(found.get(p)), "partition " + p + " is not as it was sent");
        }
        return "";
    }

    String members(String name, Map<String, String> more) {
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> first = consumer(name, more)) {
            first.subscribe(List.of(data));
            until("all partitions", () -> { take(first, seen); return first.assignment().size() == PARTITIONS; });
            try (KafkaConsumer<String, String> second = consumer(name, more)) {
                second.subscribe(List.of(data));
                until("two members to share", () -> {
                    take(first, seen);
                    take(second, seen);
                    int a = first.assignment().size(), b = second.assignment().size();
                    return a + b == PARTITIONS && a > 0 && b > 0;
                });
            }
            until("all partitions again", () -> { take(first, seen); return first.assignment().size() == PARTITIONS; });
            int each = RECORDS / PARTITIONS;
            until("all positions", () -> {
                take(first, seen);
                return places().stream().allMatch(p -> first.assignment().contains(p) && first.position(p) == each);
            });
            first.commitSync();
        }
        check(seen.equals(values(0, RECORDS)), seen.size() + " records");
        return "3, 2+1, 3 partitions";
    }

    String resume() throws Exception {
        send(data, RECORDS, RECORDS + MORE, "none", -1);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> reader = consumer(group, Map.of())) {
            reader.subscribe(List.of(data));
            until("the records after the commit", () -> take(reader, seen) == 0 && seen.size() >= MORE);
            reader.commitSync();
        }
        check(seen.equals(values(RECORDS, MORE)), seen.size() + " records, not those after the commit");
        return "";
    }

    String topics() throws Exception {
        try (Admin client = admin()) {
            client.createTopics(List.of(new NewTopic(admin, 1, (short) 3))).all().get();
            until("the topic in the list", () -> listed(client, admin));
            until("a leader", () -> described(client, admin) != null);
        }
        return "";
    }

    String configs() throws Exception {
        try (Admin client = admin()) {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, admin);
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", RETENTION), AlterConfigOp.OpType.SET);
            client.incrementalAlterConfigs(Map.of(topic, List.of(set))).all().get();
            until("the config", () -> RETENTION.equals(
                get(client.describeConfigs(List.of(topic)).all()).get(topic).get("retention.ms").value()));
        }
        return "";
    }

    String partitions() throws Exception {
        try (Admin client = admin()) {
            client.createPartitions(Map.of(admin, NewPartitions.increaseTo(4))).all().get();
            until("four partitions", () -> {
                TopicDescription topic = described(client, admin);
                return topic != null && topic.partitions().size() == 4;
            });
        }
        return "";
    }

    String deleteRecords() throws Exception {
        send(admin, 0, 20, "none", 0);
        try (Admin client = admin()) {
            TopicPartition place = new TopicPartition(admin, 0);
            client.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(5))).all().get();
            long earliest = client.listOffsets(Map.of(place, OffsetSpec.earliest())).all().get().get(place).offset();
            check(earliest == 5, "starts at " + earliest);
        }
        return "";
    }

    String deleteTopic() throws Exception {
        try (Admin client = admin()) {
            client.createTopics(List.of(new NewTopic(gone, 1, (short) 3))).all().get();
            until("the topic", () -> listed(client, gone));
            client.deleteTopics(List.of(gone)).all().get();
            until("its end", () -> !listed(client, gone));
        }
        return "";
    }

    String groups() throws Exception {
        try (Admin client = admin()) {
            check(client.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "not in the list");
            ConsumerGroupDescription found = client.describeConsumerGroups(List.of(group)).all().get().get(group);
            return found.state().toString().toLowerCase();
        }
    }

    String transactions() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transaction);
        settings.put("max.block.ms", 15000);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(admin, 1, null, "in a transaction"));
            producer.commitTransaction();
            return "";
        } catch (KafkaException error) {
            throw refused(error);
        } finally {
            producer.close(Duration.ofSeconds(1));
        }
    }

    String kip848() {
        try {
            return members(group + "-848", Map.of("group.protocol", "consumer"));
        } catch (KafkaException error) {
            throw refused(error);
        }
    }

    // A time-out is no word of the broker's.
    static RuntimeException refused(KafkaException error) {
        if (error instanceof TimeoutException) return error;
        return new Refused(error.getMessage());
    }

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    KafkaConsumer<String, String> consumer(String name, Map<String, String> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        if (name != null) settings.put("group.id", name);
        if (name != null && more.isEmpty()) settings.put("heartbeat.interval.ms", 500);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    void send(String topic, int from, int to, String codec, int partition) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "acks", "all", "compression.type", codec);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = from; i < to; i++) {
                int place = partition < 0 ? i % PARTITIONS : partition;
                sent.add(producer.send(new ProducerRecord<>(topic, place, "k" + i % 30, "v" + i)));
            }
            for (Future<RecordMetadata> future : sent) future.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        }
    }

    int take(KafkaConsumer<String, String> reader, Set<String> seen) {
        ConsumerRecords<String, String> records = reader.poll(POLL);
        records.forEach(record -> seen.add(record.value()));
        return records.count();
    }

    List<TopicPartition> places() {
        return IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(data, p)).toList();
    }

    static Set<String> values(int first, int count) {
        return IntStream.range(first, first + count).mapToObj(i -> "v" + i).collect(Collectors.toSet());
    }

    static TopicDescription described(Admin client, String topic) {
        try {
            TopicDescription found = client.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().stream().allMatch(p -> p.leader() != null && p.leader().id() >= 0) ? found : null;
        } catch (Exception notYet) {
            return null;
        }
    }

    static boolean listed(Admin client, String topic) {
        return get(client.listTopics().names()).contains(topic);
    }

    static <T> T get(KafkaFuture<T> future) {
        try {
            return future.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        } catch (Exception error) {
            throw new KafkaException(error);
        }
    }

    static void until(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + LIMIT.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException("waited " + LIMIT.toSeconds() + " s for " + what);
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    static void check(boolean condition, String message) {
        if (!condition) throw new IllegalStateException(message);
    }

    static void tell(String step, boolean ok, String detail, String more) {
        String quoted = detail.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        System.out.println("{\"step\":\"" + step + "\",\"ok\":" + ok + ",\"detail\":\"" + quoted + "\"" + more + "}");
    }
}
