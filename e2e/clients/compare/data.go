package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const base = int64(1700000000000)

func records(count int, topic string, part int32) (list []*kgo.Record) {
	for i := 0; i < count; i++ {
		list = append(list, &kgo.Record{Topic: topic, Partition: part, Key: []byte{byte(i)}, Value: []byte(fmt.Sprint("v", i)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}, Timestamp: time.UnixMilli(base + int64(i)*1000)})
	}
	return
}

func produce(name string, list []*kgo.Record, options ...kgo.Opt) {
	limit, end := context.WithTimeout(ctx, 8*time.Second)
	defer end()
	options = append(options, kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(2))
	c, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Println(name, err)
		return
	}
	defer c.Close()
	began := time.Now()
	err = c.ProduceSync(limit, list...).FirstErr()
	fmt.Printf("produce %s: %v offset %d", name, err, list[len(list)-1].Offset)
	if time.Since(began) > 3*time.Second {
		fmt.Print(" SLOW")
	}
	fmt.Println()
}

func offsets(topic string, part int32, ts ...int64) {
	for _, t := range ts {
		r := kmsg.NewPtrListOffsetsRequest()
		r.ReplicaID = -1
		x := kmsg.NewListOffsetsRequestTopic()
		x.Topic = topic
		y := kmsg.NewListOffsetsRequestTopicPartition()
		y.Partition, y.Timestamp = part, t
		x.Partitions = append(x.Partitions, y)
		r.Topics = append(r.Topics, x)
		send(fmt.Sprint("offsets ", topic, part, " ", t), r)
	}
}

func fetch(name, topic string, part int32, offset int64, epoch int32, isolation int8) {
	limit, end := context.WithTimeout(ctx, 4*time.Second)
	defer end()
	o := kgo.NewOffset().At(offset)
	if epoch >= 0 {
		o = o.WithEpoch(epoch)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {part: o}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchIsolationLevel(kgo.IsolationLevel{}), kgo.KeepRetryableFetchErrors())
	if err != nil {
		fmt.Println(name, err)
		return
	}
	defer c.Close()
	f := c.PollFetches(limit)
	fmt.Printf("fetch %s: err %v records %d\n", name, f.Err(), f.NumRecords())
	f.EachRecord(func(r *kgo.Record) {
		fmt.Printf("  %d %q %q %v %d attrs %v %v\n", r.Offset, r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli(), r.Attrs.CompressionType(), r.Attrs.TimestampType())
	})
}

func data() {
	f := int16(*rf)
	create("cmp-d", 3, f, false)
	create("cmp-small", 1, f, false, "max.message.bytes", "1000")
	create("cmp-lat", 1, f, false, "message.timestamp.type", "LogAppendTime")
	create("cmp-zstd", 1, f, false, "compression.type", "zstd")
	create("cmp-compact", 1, f, false, "cleanup.policy", "compact")
	create("cmp-old", 1, f, false, "message.timestamp.before.max.ms", "1000")
	time.Sleep(time.Second)
	produce("plain", records(20, "cmp-d", 0))
	produce("acks0", records(5, "cmp-d", 1), kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	produce("acks1", records(5, "cmp-d", 1), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	produce("unknown topic", records(1, "cmp-none", 0))
	produce("unknown partition", records(1, "cmp-d", 9))
	big := records(1, "cmp-small", 0)
	big[0].Value = make([]byte, 5000)
	produce("too large", big, kgo.ProducerBatchCompression(kgo.NoCompression()))
	big = records(1, "cmp-small", 0)
	big[0].Value = make([]byte, 5000)
	produce("too large, compresses", big, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	produce("log append time", records(3, "cmp-lat", 0))
	produce("recompress", records(3, "cmp-zstd", 0), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	nokey := records(1, "cmp-compact", 0)
	nokey[0].Key = nil
	produce("no key, compacted", nokey)
	produce("key, compacted", records(1, "cmp-compact", 0))
	produce("too old", records(1, "cmp-old", 0))
	future := records(1, "cmp-d", 2)
	future[0].Timestamp = time.Now().Add(48 * time.Hour)
	produce("future", future)
	neg := records(1, "cmp-d", 2)
	neg[0].Timestamp = time.UnixMilli(-1)
	produce("no timestamp", neg)
	offsets("cmp-d", 0, -1, -2, -3, -4, -5, -6, -7, 0, base, base+500, base+5000, base+19000, base+19001)
	offsets("cmp-d", 9, -1)
	offsets("cmp-none", 0, -1)
	offsets("cmp-zstd", 0, -3, base+1)
	fetch("middle", "cmp-d", 0, 17, -1, 0)
	fetch("beyond", "cmp-d", 0, 500, -1, 0)
	fetch("zstd", "cmp-zstd", 0, 0, -1, 0)
	fetch("epoch 0", "cmp-d", 0, 18, 0, 0)
	fetch("no timestamp", "cmp-d", 2, 0, -1, 0)
	for _, e := range []int32{-1, 0, 5, 100} {
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.ReplicaID = -1
		x := kmsg.NewOffsetForLeaderEpochRequestTopic()
		x.Topic = "cmp-d"
		y := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		y.Partition, y.CurrentLeaderEpoch, y.LeaderEpoch = 0, -1, e
		x.Partitions = append(x.Partitions, y)
		r.Topics = append(r.Topics, x)
		send(fmt.Sprint("epoch ", e), r)
	}
	for _, o := range []int64{-2, 500, 5, 3, 0, -1} {
		r := kmsg.NewPtrDeleteRecordsRequest()
		x := kmsg.NewDeleteRecordsRequestTopic()
		x.Topic = "cmp-d"
		y := kmsg.NewDeleteRecordsRequestTopicPartition()
		y.Partition, y.Offset = 0, o
		x.Partitions = append(x.Partitions, y)
		r.Topics = append(r.Topics, x)
		r.TimeoutMillis = 3000
		send(fmt.Sprint("delete records ", o), r)
	}
	r := kmsg.NewPtrDeleteRecordsRequest()
	x := kmsg.NewDeleteRecordsRequestTopic()
	x.Topic = "cmp-compact"
	y := kmsg.NewDeleteRecordsRequestTopicPartition()
	y.Partition, y.Offset = 0, 1
	x.Partitions = append(x.Partitions, y)
	r.Topics = append(r.Topics, x)
	r.TimeoutMillis = 3000
	send("delete records compacted", r)
	offsets("cmp-d", 0, -1, -2, -3, base)
	fetch("before start", "cmp-d", 0, 0, -1, 0)
	i := kmsg.NewPtrInitProducerIDRequest()
	i.TransactionTimeoutMillis = 60000
	resp, err := i.RequestWith(ctx, cl)
	if err == nil {
		fmt.Println("init producer", resp.ErrorCode, resp.ProducerEpoch, resp.ProducerID >= 0)
	} else {
		fmt.Println("init producer", err)
	}
}
