//! Creating topics and looking at a cluster, through librdkafka.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::Metadata;
use rdkafka::types::RDKafkaErrorCode;
use taffrail_protocol::Request;
use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::IncrementalAlterConfigsRequest;
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use tokio::runtime::Runtime;

use crate::wait::wait_for;

/// How long one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// A topic, in requests about configs, and the operation that sets one.
const TOPIC_RESOURCE: i8 = 2;
const SET: i8 = 0;
/// How long a new topic's partitions may be without a leader.
const LEADER_LIMIT: Duration = Duration::from_secs(30);

/// A broker as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Where clients reach it.
    pub address: String,
}

/// A partition as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its index in the topic.
    pub partition: i32,
    /// The leader's broker id; -1 without one.
    pub leader: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// The in-sync replicas, sorted.
    pub isr: Vec<i32>,
}

/// An admin client.
pub struct Admin {
    bootstrap: String,
    client: AdminClient<DefaultClientContext>,
    runtime: Runtime,
}

impl Admin {
    /// Makes a client; nothing is sent before the first call.
    pub fn connect(bootstrap: &str) -> Result<Self> {
        let client = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("log_level", "0")
            // A broker that is being started again is tried at once, not after librdkafka's usual 10 s.
            .set("reconnect.backoff.max.ms", "500")
            .create()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            bootstrap: bootstrap.to_owned(),
            client,
            runtime,
        })
    }

    /// The brokers that are alive, by id.
    pub fn brokers(&self) -> Result<Vec<Broker>> {
        let metadata = self.metadata()?;
        let mut brokers: Vec<Broker> = metadata
            .brokers()
            .iter()
            .map(|b| Broker {
                id: b.id(),
                address: format!("{}:{}", b.host(), b.port()),
            })
            .collect();
        brokers.sort_by_key(|b| b.id);
        Ok(brokers)
    }

    /// A topic's partitions in order, or an error if there is no such topic.
    pub fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let metadata = self.metadata()?;
        let found = metadata
            .topics()
            .iter()
            .find(|t| t.name() == topic)
            .with_context(|| format!("there is no topic {topic}"))?;
        if let Some(error) = found.error() {
            bail!("topic {topic}: {:?}", RDKafkaErrorCode::from(error));
        }
        let mut partitions: Vec<Partition> = found
            .partitions()
            .iter()
            .map(|p| {
                let mut isr = p.isr().to_vec();
                isr.sort_unstable();
                Partition {
                    partition: p.id(),
                    leader: p.leader(),
                    replicas: p.replicas().to_vec(),
                    isr,
                }
            })
            .collect();
        partitions.sort_by_key(|p| p.partition);
        Ok(partitions)
    }

    /// The names of all topics, sorted.
    pub fn topics(&self) -> Result<Vec<String>> {
        let metadata = self.metadata()?;
        let mut names: Vec<String> = metadata
            .topics()
            .iter()
            .map(|t| t.name().to_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Creates a topic and waits until each partition has a leader and a full ISR.
    pub fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        replication_factor: i32,
        config: &[(&str, &str)],
    ) -> Result<()> {
        let mut new = NewTopic::new(
            topic,
            partitions,
            TopicReplication::Fixed(replication_factor),
        );
        for (name, value) in config {
            new = new.set(name, value);
        }
        self.create(topic, &new)?;
        self.wait_in_sync(
            topic,
            usize::try_from(partitions)?,
            usize::try_from(replication_factor)?,
            LEADER_LIMIT,
        )
    }

    /// Creates a topic of one partition with these replicas, the first one leading.
    pub fn create_assigned(
        &self,
        topic: &str,
        replicas: &[i32],
        config: &[(&str, &str)],
    ) -> Result<()> {
        self.create_all_assigned(topic, 1, replicas, config)
    }

    /// Creates a topic whose partitions all have these replicas, the first one leading.
    pub fn create_all_assigned(
        &self,
        topic: &str,
        partitions: usize,
        replicas: &[i32],
        config: &[(&str, &str)],
    ) -> Result<()> {
        let assignment = vec![replicas; partitions];
        let replication = TopicReplication::Variable(&assignment);
        let mut new = NewTopic::new(topic, i32::try_from(partitions)?, replication);
        for (name, value) in config {
            new = new.set(name, value);
        }
        self.create(topic, &new)?;
        self.wait_in_sync(topic, partitions, replicas.len(), LEADER_LIMIT)
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT));
        for result in self
            .runtime
            .block_on(self.client.delete_topics(&[topic], &options))?
        {
            result.map_err(|(name, code)| anyhow!("cannot delete {name}: {code}"))?;
        }
        Ok(())
    }

    /// Deletes a consumer group; the error is Kafka's code.
    pub fn delete_group(&self, group: &str) -> Result<Result<(), RDKafkaErrorCode>> {
        let request = self.client.delete_groups(&[group], &AdminOptions::new());
        let result = self.runtime.block_on(request)?.pop();
        let result = result.context("no answer about the group")?;
        Ok(result.map(|_| ()).map_err(|(_, code)| code))
    }

    /// Waits until `topic` has that many partitions, each with a leader and that many replicas in sync.
    pub fn wait_in_sync(
        &self,
        topic: &str,
        partitions: usize,
        in_sync: usize,
        limit: Duration,
    ) -> Result<()> {
        wait_for(
            &format!("{partitions} partitions of {topic} with {in_sync} replicas in sync"),
            limit,
            || {
                let found = self.partitions(topic)?;
                let ready = found.len() == partitions
                    && found
                        .iter()
                        .all(|p| p.leader >= 0 && p.isr.len() == in_sync);
                if ready {
                    Ok(Some(()))
                } else {
                    Err(anyhow!("{found:?}"))
                }
            },
        )
    }

    /// One effective config value of a topic.
    pub fn topic_config(&self, topic: &str, name: &str) -> Result<Option<String>> {
        let resource = ResourceSpecifier::Topic(topic);
        let answers = self.runtime.block_on(
            self.client
                .describe_configs([&resource], &AdminOptions::new()),
        )?;
        for answer in answers {
            let described = answer.map_err(|code| anyhow!("cannot describe {topic}: {code}"))?;
            if let Some(entry) = described.get(name) {
                return Ok(entry.value.clone());
            }
        }
        Ok(None)
    }

    /// Sets one config value of a topic and leaves the others. The client knows only AlterConfigs, which Taffrail does not have.
    pub fn set_topic_config(&self, topic: &str, name: &str, value: &str) -> Result<()> {
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: TOPIC_RESOURCE,
                resource_name: topic.to_owned(),
                configs: vec![AlterableConfig {
                    name: name.to_owned(),
                    config_operation: SET,
                    value: Some(value.to_owned()),
                }],
            }],
            validate_only: false,
        };
        let version = IncrementalAlterConfigsRequest::MAX_VERSION;
        let addresses = self.bootstrap.split(',');
        // A broker of the list may have been killed by the test.
        let mut stream = (addresses.map(TcpStream::connect))
            .find_map(Result::ok)
            .context("no broker can be reached")?;
        stream.set_read_timeout(Some(REQUEST_LIMIT))?;
        stream.write_all(&encode_request(1, Some("e2e"), &request, version)?)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?.min(1 << 20)];
        stream.read_exact(&mut answer)?;
        let response = decode_response::<IncrementalAlterConfigsRequest>(&answer, version)?.1;
        for altered in response.responses {
            ensure!(
                altered.error_code == 0,
                "cannot alter {topic}: {:?}",
                altered.error_message
            );
        }
        Ok(())
    }

    /// All topics: asking for one by name would have a broker create it.
    fn metadata(&self) -> Result<Metadata> {
        Ok(self.client.inner().fetch_metadata(None, REQUEST_LIMIT)?)
    }

    fn create(&self, topic: &str, new: &NewTopic<'_>) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT));
        // A broker that was started a moment ago may not count for placement yet, so a refusal is not final.
        wait_for(
            &format!("topic {topic} to be created"),
            LEADER_LIMIT,
            || {
                let request = self.client.create_topics([new], &options);
                for result in self.runtime.block_on(request)? {
                    match result {
                        // librdkafka repeats a request whose answer it did not get; the first one was carried out.
                        Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                        Err((_, code)) => bail!("{code}"),
                    }
                }
                Ok(Some(()))
            },
        )
    }
}
