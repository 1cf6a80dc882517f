// kafkajs in the matrix of clients. ../README.md says what each step does.
"use strict";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const PARTITIONS = 3;
const RECORDS = 300;
const MORE = 30;
const RETENTION = "7654321";
// For everything that a step waits for, in milliseconds.
const LIMIT = 45000;

class Refused extends Error {}

const options = {};
for (let i = 2; i + 1 < process.argv.length; i += 2) options[process.argv[i]] = process.argv[i + 1];
const prefix = options["--prefix"];
const names = Object.fromEntries(["data", "admin", "gone", "group", "transaction"].map((role) => [role, `${prefix}-${role}`]));
const kafka = new Kafka({ brokers: options["--bootstrap"].split(","), clientId: "kafkajs", logLevel: logLevel.ERROR, retry: { retries: 3 } });

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function check(condition, message) {
  if (!condition) throw new Error(message);
}

async function until(what, condition) {
  const end = Date.now() + LIMIT;
  while (!(await condition())) {
    check(Date.now() < end, `waited ${LIMIT / 1000} s for ${what}`);
    await sleep(50);
  }
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

async function makeTopic(admin, topic, numPartitions) {
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 3 }] });
  await until("all leaders", async () => (await described(admin, topic)).length === numPartitions);
}

// The partitions of a topic once all have leaders and three replicas.
async function described(admin, topic) {
  const { partitions } = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0];
  return partitions.every((p) => p.leader >= 0 && p.replicas.length === 3) ? partitions : [];
}

async function send(topic, first, count, compression, partition) {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = Array.from({ length: count }, (_, i) => first + i).map((i) => ({
    key: `k${i % 30}`,
    value: `v${i}`,
    partition: partition ?? i % PARTITIONS,
  }));
  await producer.send({ topic, messages, acks: -1, compression });
  await producer.disconnect();
}

const range = (first, count) => Array.from({ length: count }, (_, i) => `v${first + i}`);

function checkSet(seen, first, count) {
  check(seen.size === count && range(first, count).every((value) => seen.has(value)), `${seen.size} records, not the ${count} from ${first}`);
}

// One member of the group with what it owns and has read; it never commits by itself.
async function join(groupId) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 100 });
  const member = { consumer, owned: 0, seen: new Set(), ends: {} };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = (payload.memberAssignment[names.data] || []).length;
  });
  consumer.on(consumer.events.REBALANCING, () => {
    member.owned = 0;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [names.data], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.seen.add(message.value.toString());
      member.ends[partition] = Number(message.offset) + 1;
    },
  });
  return member;
}

async function commit(member) {
  const offsets = Object.entries(member.ends).map(([partition, end]) => ({
    topic: names.data,
    partition: Number(partition),
    offset: String(end),
  }));
  await member.consumer.commitOffsets(offsets);
}

const steps = {
  async create() {
    await withAdmin((admin) => makeTopic(admin, names.data, PARTITIONS));
    return `kafkajs ${require("kafkajs/package.json").version}`;
  },

  async produce() {
    await send(names.data, 0, RECORDS / 2, CompressionTypes.None);
    await send(names.data, RECORDS / 2, RECORDS / 2, CompressionTypes.GZIP);
    return "none gzip; the other codecs are packages of their own";
  },

  async group() {
    const first = await join(names.group);
    let second;
    try {
      await until("all partitions", () => first.owned === PARTITIONS);
      second = await join(names.group);
      await until("two members to share", () => first.owned + second.owned === PARTITIONS && first.owned > 0 && second.owned > 0);
      await second.consumer.disconnect();
      second = undefined;
      await until("all partitions again", () => first.owned === PARTITIONS);
      const each = RECORDS / PARTITIONS;
      await until("all records", () => [0, 1, 2].every((p) => first.ends[p] === each) && first.seen.size === RECORDS);
      await commit(first);
    } finally {
      await second?.consumer.disconnect();
      await first.consumer.disconnect();
    }
    checkSet(first.seen, 0, RECORDS);
    return "3, 2+1, 3 partitions";
  },

  async resume() {
    await send(names.data, RECORDS, MORE, CompressionTypes.None);
    const reader = await join(names.group);
    await until("the records after the commit", () => reader.seen.size >= MORE);
    await commit(reader);
    await reader.consumer.disconnect();
    checkSet(reader.seen, RECORDS, MORE);
  },

  topics: () =>
    withAdmin(async (admin) => {
      await makeTopic(admin, names.admin, 1);
      check((await admin.listTopics()).includes(names.admin), "not in the list");
    }),

  configs: () =>
    withAdmin(async (admin) => {
      const topic = { type: ConfigResourceTypes.TOPIC, name: names.admin };
      await admin.alterConfigs({ resources: [{ ...topic, configEntries: [{ name: "retention.ms", value: RETENTION }] }] });
      await until("the config", async () => {
        const found = await admin.describeConfigs({ includeSynonyms: false, resources: [{ ...topic, configNames: ["retention.ms"] }] });
        return found.resources[0].configEntries[0].configValue === RETENTION;
      });
    }),

  partitions: () =>
    withAdmin(async (admin) => {
      await admin.createPartitions({ topicPartitions: [{ topic: names.admin, count: 4 }] });
      await until("four partitions", async () => (await described(admin, names.admin)).length === 4);
    }),

  async "delete-records"() {
    await send(names.admin, 0, 20, CompressionTypes.None, 0);
    await withAdmin(async (admin) => {
      // The call needs metadata that only others of its calls load.
      await admin.fetchTopicOffsets(names.admin);
      await admin.deleteTopicRecords({ topic: names.admin, partitions: [{ partition: 0, offset: "5" }] });
      const start = (await admin.fetchTopicOffsets(names.admin)).find((p) => p.partition === 0).low;
      check(start === "5", `starts at ${start}`);
    });
  },

  "delete-topic": () =>
    withAdmin(async (admin) => {
      await makeTopic(admin, names.gone, 1);
      await admin.deleteTopics({ topics: [names.gone] });
      await until("its end", async () => !(await admin.listTopics()).includes(names.gone));
    }),

  groups: () =>
    withAdmin(async (admin) => {
      check((await admin.listGroups()).groups.some((g) => g.groupId === names.group), "not in the list");
      return (await admin.describeGroups([names.group])).groups[0].state.toLowerCase();
    }),

  async transactions() {
    const producer = kafka.producer({ transactionalId: names.transaction, idempotent: true, maxInFlightRequests: 1 });
    try {
      await producer.connect();
      const transaction = await producer.transaction();
      await transaction.send({ topic: names.admin, messages: [{ value: "in a transaction", partition: 1 }] });
      await transaction.commit();
    } catch (error) {
      if (/timed? ?out/i.test(error.message)) throw error;
      throw new Refused(error.message);
    } finally {
      await producer.disconnect();
    }
  },
};

function tell(step, ok, detail, more) {
  process.stdout.write(`${JSON.stringify({ step, ok, detail: detail || "", ...more })}\n`);
}

async function main() {
  let failed = false;
  for (const name of options["--steps"].split(",")) {
    if (!steps[name]) {
      tell(name, false, "the library has no call for it", { absent: true });
      continue;
    }
    try {
      tell(name, true, await steps[name]());
    } catch (error) {
      failed = failed || !(error instanceof Refused);
      console.error(error);
      tell(name, false, error.message, error instanceof Refused ? { refused: true } : {});
    }
  }
  process.exit(failed ? 1 : 0);
}

main();
