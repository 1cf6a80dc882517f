//! The broker's Prometheus metrics, spelled as existing Kafka dashboards query them. Label sets are closed:
//! topics and APIs; per-partition series only when the configuration asks for them.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use taffrail_protocol::api::ApiKey;

/// Everything that `/metrics` shows of a node.
pub struct NodeMetrics {
    /// The registry to gather from.
    pub registry: Registry,
    pub(crate) topics: TopicFamilies,
    by_topic: RwLock<BTreeMap<String, Arc<TopicMetrics>>>,
    requests_by_api: BTreeMap<ApiKey, IntCounter>,
    request_errors: IntCounterVec,
    pub(crate) partition_count: IntGauge,
    pub(crate) leader_count: IntGauge,
    pub(crate) under_replicated_partitions: IntGauge,
    pub(crate) under_min_isr_partition_count: IntGauge,
    pub(crate) offline_replica_count: IntGauge,
    pub(crate) isr_shrinks: IntCounter,
    pub(crate) isr_expands: IntCounter,
    pub(crate) active_controller_count: IntGauge,
    pub(crate) offline_partitions_count: IntGauge,
    pub(crate) global_topic_count: IntGauge,
    pub(crate) global_partition_count: IntGauge,
    pub(crate) fenced_broker_count: IntGauge,
    pub(crate) active_broker_count: IntGauge,
    pub(crate) unclean_leader_elections: IntCounter,
    pub(crate) offline_log_directory_count: IntGauge,
    pub(crate) directory_usable_bytes: IntGaugeVec,
    pub(crate) directory_full: IntGaugeVec,
    pub(crate) scrubbed_bytes: IntCounter,
    pub(crate) damaged_replica_count: IntGauge,
    pub(crate) metadata_index: IntGauge,
    pub(crate) metadata_hash: IntGauge,
    pub(crate) group_count: IntGauge,
    pub(crate) consumer_lag: IntGaugeVec,
    pub(crate) partition_offsets: IntGaugeVec,
    pub(crate) failed_isr_updates: IntCounter,
    pub(crate) follower_out_of_sync: IntGaugeVec,
    pub(crate) follower_lag_max: IntGaugeVec,
    pub(crate) follower_caught_up_ms_ago_max: IntGaugeVec,
    pub(crate) remaining_logs_to_recover: IntGauge,
}

/// The per-topic counter families.
pub(crate) struct TopicFamilies {
    messages_in: IntCounterVec,
    bytes_in: IntCounterVec,
    bytes_out: IntCounterVec,
    replication_bytes_in: IntCounter,
    replication_bytes_out: IntCounter,
    failed_produce: IntCounterVec,
    failed_fetch: IntCounterVec,
}

/// One topic's counters, looked up once per partition and then only added to.
pub(crate) struct TopicMetrics {
    pub(crate) messages_in: IntCounter,
    pub(crate) bytes_in: IntCounter,
    pub(crate) bytes_out: IntCounter,
    pub(crate) replication_bytes_in: IntCounter,
    pub(crate) replication_bytes_out: IntCounter,
    pub(crate) failed_produce: IntCounter,
    pub(crate) failed_fetch: IntCounter,
}

impl NodeMetrics {
    /// All metrics at zero, registered in a registry of their own.
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let families = Families {
            registry: &registry,
        };
        let requests = families.counters(
            "kafka_network_requestmetrics_requests_total",
            "Requests handled, by API.",
            &["request"],
        );
        let requests_by_api = ApiKey::all()
            .map(|api| (api, requests.with_label_values(&[&format!("{api:?}")])))
            .collect();
        let server = "kafka_server_replicamanager_";
        let controller = "kafka_controller_kafkacontroller_";
        Self {
            topics: TopicFamilies {
                messages_in: families.counters(
                    "kafka_server_brokertopicmetrics_messagesin_total",
                    "Records appended by producers.",
                    &["topic"],
                ),
                bytes_in: families.counters(
                    "kafka_server_brokertopicmetrics_bytesin_total",
                    "Bytes appended by producers.",
                    &["topic"],
                ),
                bytes_out: families.counters(
                    "kafka_server_brokertopicmetrics_bytesout_total",
                    "Bytes sent to consumers.",
                    &["topic"],
                ),
                replication_bytes_in: families.counter(
                    "kafka_server_brokertopicmetrics_replicationbytesin_total",
                    "Bytes appended as a follower.",
                ),
                replication_bytes_out: families.counter(
                    "kafka_server_brokertopicmetrics_replicationbytesout_total",
                    "Bytes sent to followers.",
                ),
                failed_produce: families.counters(
                    "kafka_server_brokertopicmetrics_failedproducerequests_total",
                    "Produce requests refused, by topic.",
                    &["topic"],
                ),
                failed_fetch: families.counters(
                    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
                    "Fetch requests refused, by topic.",
                    &["topic"],
                ),
            },
            by_topic: RwLock::new(BTreeMap::new()),
            request_errors: families.counters(
                "kafka_network_requestmetrics_errors_total",
                "Connections closed because a request could not be answered, by API.",
                &["request"],
            ),
            partition_count: families.gauge(
                &format!("{server}partitioncount"),
                "Replicas that this broker holds.",
            ),
            leader_count: families.gauge(
                &format!("{server}leadercount"),
                "Partitions that this broker leads.",
            ),
            under_replicated_partitions: families.gauge(
                &format!("{server}underreplicatedpartitions"),
                "Partitions led here whose ISR is smaller than their replica set.",
            ),
            under_min_isr_partition_count: families.gauge(
                &format!("{server}underminisrpartitioncount"),
                "Partitions led here whose ISR is smaller than min.insync.replicas.",
            ),
            offline_replica_count: families.gauge(
                &format!("{server}offlinereplicacount"),
                "Replicas of this broker that are offline because of a disk error.",
            ),
            isr_shrinks: families
                .counter(&format!("{server}isrshrinks_total"), "ISRs made smaller."),
            isr_expands: families
                .counter(&format!("{server}isrexpands_total"), "ISRs made larger."),
            failed_isr_updates: families.counter(
                &format!("{server}failedisrupdates_total"),
                "ISR changes that the controller refused.",
            ),
            active_controller_count: families.gauge(
                &format!("{controller}activecontrollercount"),
                "1 on the active controller, else 0.",
            ),
            offline_partitions_count: families.gauge(
                &format!("{controller}offlinepartitionscount"),
                "Partitions without a leader.",
            ),
            global_topic_count: families.gauge(
                &format!("{controller}globaltopiccount"),
                "Topics in the cluster.",
            ),
            global_partition_count: families.gauge(
                &format!("{controller}globalpartitioncount"),
                "Partitions in the cluster.",
            ),
            fenced_broker_count: families.gauge(
                &format!("{controller}fencedbrokercount"),
                "Registered brokers that are fenced.",
            ),
            active_broker_count: families.gauge(
                &format!("{controller}activebrokercount"),
                "Registered brokers that are not fenced.",
            ),
            unclean_leader_elections: families.counter(
                "kafka_controller_controllerstats_uncleanleaderelections_total",
                "Leaders elected without proof that they have every acknowledged record, decided by this broker as the active controller.",
            ),
            offline_log_directory_count: families.gauge(
                "kafka_log_logmanager_offlinelogdirectorycount",
                "Log directories taken offline by an error.",
            ),
            directory_usable_bytes: families.gauges(
                "taffrail_log_directory_usable_bytes",
                "Bytes left on the volume of a log directory, the reserve included.",
                &["directory"],
            ),
            directory_full: families.gauges(
                "taffrail_log_directory_full",
                "1 while producers are refused because a log directory is full up to its reserve.",
                &["directory"],
            ),
            scrubbed_bytes: families.counter(
                "taffrail_log_scrubbed_bytes_total",
                "Bytes of logs that were read through and whose checksums matched.",
            ),
            damaged_replica_count: families.gauge(
                "taffrail_log_damaged_replicas",
                "Replicas here whose log is damaged, or is being fetched anew after that.",
            ),
            metadata_index: families.gauge(
                "taffrail_metadata_index",
                "The last metadata index applied.",
            ),
            metadata_hash: families.gauge(
                "taffrail_metadata_hash",
                "Hash of the metadata image: equal on all brokers at equal index.",
            ),
            group_count: families.gauge(
                "kafka_coordinator_group_groupmetadatamanager_numgroups",
                "Groups coordinated here.",
            ),
            consumer_lag: families.gauges(
                "kafka_consumergroup_lag",
                "High watermark minus committed offset, for groups coordinated here.",
                &["consumergroup", "topic", "partition"],
            ),
            partition_offsets: families.gauges(
                "taffrail_partition_offset",
                "Offsets of this broker's replicas (taffrail.metrics.per.partition=true).",
                &["topic", "partition", "offset"],
            ),
            follower_out_of_sync: families.gauges(
                "taffrail_follower_out_of_sync",
                "Replicas of partitions led here that are out of sync, by the broker that holds them.",
                &["broker"],
            ),
            follower_lag_max: families.gauges(
                "taffrail_follower_lag_max",
                "The most records that a follower of a partition led here lacks, by its broker.",
                &["broker"],
            ),
            follower_caught_up_ms_ago_max: families.gauges(
                "taffrail_follower_caught_up_ms_ago_max",
                "Milliseconds since the last of the replicas that are out of sync was caught up, by its broker.",
                &["broker"],
            ),
            remaining_logs_to_recover: families.gauge(
                "kafka_log_logmanager_remaininglogstorecover",
                "Logs that the start has not opened yet.",
            ),
            requests_by_api,
            registry,
        }
    }

    /// Counts one request.
    pub(crate) fn request(&self, api: ApiKey) {
        if let Some(counter) = self.requests_by_api.get(&api) {
            counter.inc();
        }
    }

    /// Counts a request that was answered by closing the connection.
    pub(crate) fn request_error(&self, api: ApiKey) {
        self.request_errors
            .with_label_values(&[&format!("{api:?}")])
            .inc();
    }

    /// The counters of one topic.
    pub(crate) fn topic(&self, name: &str) -> Arc<TopicMetrics> {
        if let Some(found) = self
            .by_topic
            .read()
            .expect("no panic while locked")
            .get(name)
        {
            return Arc::clone(found);
        }
        let families = &self.topics;
        let made = Arc::new(TopicMetrics {
            messages_in: families.messages_in.with_label_values(&[name]),
            bytes_in: families.bytes_in.with_label_values(&[name]),
            bytes_out: families.bytes_out.with_label_values(&[name]),
            replication_bytes_in: families.replication_bytes_in.clone(),
            replication_bytes_out: families.replication_bytes_out.clone(),
            failed_produce: families.failed_produce.with_label_values(&[name]),
            failed_fetch: families.failed_fetch.with_label_values(&[name]),
        });
        self.by_topic
            .write()
            .expect("no panic while locked")
            .entry(name.to_owned())
            .or_insert(made)
            .clone()
    }

    /// Forgets a deleted topic's series.
    pub(crate) fn forget_topic(&self, name: &str) {
        self.by_topic
            .write()
            .expect("no panic while locked")
            .remove(name);
        let families = &self.topics;
        for family in [
            &families.messages_in,
            &families.bytes_in,
            &families.bytes_out,
            &families.failed_produce,
            &families.failed_fetch,
        ] {
            // Absent is fine: the topic may never have been looked up.
            let _absent = family.remove_label_values(&[name]);
        }
    }
}

/// Makes and registers metrics. Names and labels are constants of this file, so a failure is a mistake in it.
struct Families<'a> {
    registry: &'a Registry,
}

impl Families<'_> {
    fn counter(&self, name: &str, help: &str) -> IntCounter {
        let metric = IntCounter::new(name, help).expect("constant metric names are valid");
        self.registry
            .register(Box::new(metric.clone()))
            .expect("metric names are unique");
        metric
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        let metric = IntGauge::new(name, help).expect("constant metric names are valid");
        self.registry
            .register(Box::new(metric.clone()))
            .expect("metric names are unique");
        metric
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)
            .expect("constant metric names are valid");
        self.registry
            .register(Box::new(metric.clone()))
            .expect("metric names are unique");
        metric
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)
            .expect("constant metric names are valid");
        self.registry
            .register(Box::new(metric.clone()))
            .expect("metric names are unique");
        metric
    }
}
