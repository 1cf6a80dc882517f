package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batch is a record batch of format 2 with one record for each value; change may spoil it before its checksum is made.
func batch(values []string, change func(*kmsg.RecordBatch)) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		FirstTimestamp: base, MaxTimestamp: base, NumRecords: int32(len(values)), LastOffsetDelta: int32(len(values) - 1)}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Key: []byte("k"), Value: []byte(v)}
		body := r.AppendTo(nil)
		r.Length = int32(len(body) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	if change != nil {
		change(&b)
	}
	b.Length = int32(49 + len(b.Records))
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func rawProduce(name, topic string, part int32, acks int16, txn *string, raw []byte) {
	limit, end := context.WithTimeout(ctx, 8*time.Second)
	defer end()
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis, r.TransactionID = acks, 3000, txn
	x := kmsg.NewProduceRequestTopic()
	x.Topic = topic
	m, err := kmsg.NewPtrMetadataRequest(), error(nil)
	m.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	meta, err := m.RequestWith(limit, cl)
	leader := int32(0)
	if err == nil && len(meta.Topics) == 1 {
		x.TopicID = meta.Topics[0].TopicID
		for _, q := range meta.Topics[0].Partitions {
			if q.Partition == part {
				leader = q.Leader
			}
		}
	}
	if leader < 0 {
		leader = 0
	}
	y := kmsg.NewProduceRequestTopicPartition()
	y.Partition, y.Records = part, raw
	x.Partitions = append(x.Partitions, y)
	r.Topics = append(r.Topics, x)
	resp, err := cl.Broker(int(leader)).Request(limit, r)
	if err == nil {
		for _, t := range resp.(*kmsg.ProduceResponse).Topics {
			for i := range t.Partitions {
				t.Partitions[i].LogAppendTime = 0
			}
		}
	}
	say("raw "+name, resp, err)
}

func flow() {
	f := int16(*rf)
	create("cmp-r", 1, f, false)
	create("cmp-rc", 1, f, false, "cleanup.policy", "compact")
	create("cmp-rt", 1, f, false, "max.message.bytes", "2000")
	time.Sleep(time.Second)
	t := "cmp-r"
	rawProduce("good", t, 0, -1, nil, batch([]string{"a", "b"}, nil))
	rawProduce("acks 5", t, 0, 5, nil, batch([]string{"a"}, nil))
	rawProduce("empty", t, 0, -1, nil, []byte{})
	rawProduce("null", t, 0, -1, nil, nil)
	bad := batch([]string{"a"}, nil)
	bad[18] ^= 1
	rawProduce("checksum", t, 0, -1, nil, bad)
	rawProduce("magic 1", t, 0, -1, nil, func() []byte { b := batch([]string{"a"}, nil); b[16] = 1; return b }())
	rawProduce("magic 3", t, 0, -1, nil, func() []byte { b := batch([]string{"a"}, nil); b[16] = 3; return b }())
	rawProduce("cut", t, 0, -1, nil, batch([]string{"a"}, nil)[:40])
	rawProduce("two batches", t, 0, -1, nil, append(batch([]string{"a"}, nil), batch([]string{"b"}, nil)...))
	rawProduce("count too big", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.NumRecords = 5 }))
	rawProduce("count and delta too big", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.NumRecords = 5; b.LastOffsetDelta = 4 }))
	rawProduce("count zero", t, 0, -1, nil, batch(nil, func(b *kmsg.RecordBatch) { b.NumRecords = 0; b.LastOffsetDelta = -1 }))
	rawProduce("delta wrong", t, 0, -1, nil, batch([]string{"a", "b"}, func(b *kmsg.RecordBatch) { b.LastOffsetDelta = 7 }))
	rawProduce("control", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 0x20 }))
	rawProduce("transactional without", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 0x10 }))
	rawProduce("codec 7", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 7 }))
	rawProduce("gzip that is not", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 1 }))
	rawProduce("base offset 50", t, 0, -1, nil, func() []byte { b := batch([]string{"a"}, nil); b[7] = 50; return b }())
	rawProduce("bad record length", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Records[0] += 2 }))
	rawProduce("log append attribute", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 8 }))
	rawProduce("compacted no key", "cmp-rc", 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) {
		r := kmsg.Record{Value: []byte("v")}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(nil)
	}))
	rawProduce("too large", "cmp-rt", 0, -1, nil, batch([]string{string(make([]byte, 3000))}, nil))
	rawProduce("unknown partition", t, 7, -1, nil, batch([]string{"a"}, nil))
	rawProduce("id without sequence", t, 0, -1, nil, batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.ProducerID = 4000; b.ProducerEpoch = 0 }))
	i := kmsg.NewPtrInitProducerIDRequest()
	i.TransactionTimeoutMillis = 60000
	got, err := i.RequestWith(ctx, cl)
	if err != nil {
		fmt.Println("init", err)
		return
	}
	seq := func(name string, epoch int16, sequence int32, values ...string) {
		rawProduce("id "+name, t, 0, -1, nil, batch(values, func(b *kmsg.RecordBatch) {
			b.ProducerID, b.ProducerEpoch, b.FirstSequence = got.ProducerID, epoch, sequence
		}))
	}
	seq("first at 5", 0, 5, "a")
	seq("first", 0, 0, "a", "b")
	seq("same", 0, 0, "a", "b")
	seq("gap", 0, 5, "c")
	seq("next", 0, 2, "c")
	for s := int32(3); s < 9; s++ {
		seq("run", 0, s, "x")
	}
	seq("old same", 0, 0, "a", "b")
	seq("recent same", 0, 5, "x")
	seq("half overlapping", 0, 7, "x", "y")
	seq("epoch up bad", 1, 3, "a")
	seq("epoch up", 1, 0, "a")
	seq("epoch old", 0, 9, "a")
	seq("wrap", 1, 2147483647, "a", "b")
	rawProduce("one request two id batches", t, 0, -1, nil, append(
		batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = got.ProducerID, 1, 1 }),
		batch([]string{"b"}, func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = got.ProducerID, 1, 2 })...))
	offsets(t, 0, -1, -2, -3)
	pr := kmsg.NewPtrDescribeProducersRequest()
	pr.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: t, Partitions: []int32{0}}}
	send("producers", pr)
	i.TransactionalID = p("txn")
	_ = kgo.NoResetOffset
	limit, end := context.WithTimeout(ctx, 6*time.Second)
	defer end()
	resp, err := cl.DiscoveredBrokers()[0].Request(limit, i)
	if err != nil {
		fmt.Println("init transactional", err)
	} else {
		fmt.Println("init transactional", resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	}
}
