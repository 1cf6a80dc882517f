package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// readBoth tells how many records a reader of each isolation level sees of a partition within three seconds.
func readBoth(name, topic string) {
	for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		limit, end := context.WithTimeout(ctx, 3*time.Second)
		c, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.FetchIsolationLevel(level), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
		if err != nil {
			fmt.Println(err)
			end()
			continue
		}
		seen := 0
		var last error
		for limit.Err() == nil {
			f := c.PollFetches(limit)
			seen += f.NumRecords()
			if e := f.Err(); e != nil && limit.Err() == nil {
				last = e
				break
			}
		}
		c.Close()
		end()
		fmt.Printf("read %s committed=%v: %d records, %v\n", name, level == kgo.ReadCommitted(), seen, last)
	}
}

// poison sends what no client of today's broker may send, and tells what readers then see.
func poison() {
	f := int16(*rf)
	create("cmp-p1", 1, f, false)
	create("cmp-p2", 1, f, false)
	create("cmp-p3", 1, f, false)
	time.Sleep(time.Second)
	i := kmsg.NewPtrInitProducerIDRequest()
	i.TransactionTimeoutMillis = 60000
	got, err := i.RequestWith(ctx, cl)
	if err != nil {
		fmt.Println("init", err)
		return
	}
	tx := func(b *kmsg.RecordBatch) {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence, b.Attributes = got.ProducerID, 0, 0, 0x10
	}
	rawProduce("p1 plain", "cmp-p1", 0, -1, nil, batch([]string{"a"}, nil))
	rawProduce("p1 transactional batch, no transactional id", "cmp-p1", 0, -1, nil, batch([]string{"t"}, tx))
	rawProduce("p1 plain", "cmp-p1", 0, -1, nil, batch([]string{"b"}, nil))
	readBoth("p1", "cmp-p1")
	rawProduce("p2 plain", "cmp-p2", 0, -1, nil, batch([]string{"a"}, nil))
	rawProduce("p2 transactional batch with an id never seen", "cmp-p2", 0, -1, nil, batch([]string{"t"}, func(b *kmsg.RecordBatch) {
		tx(b)
		b.ProducerID = 123456789
	}))
	rawProduce("p2 with transactional id", "cmp-p2", 0, -1, p("x"), batch([]string{"t"}, tx))
	rawProduce("p2 plain batch with transactional id", "cmp-p2", 0, -1, p("x"), batch([]string{"t"}, nil))
	rawProduce("p2 plain", "cmp-p2", 0, -1, nil, batch([]string{"b"}, nil))
	readBoth("p2", "cmp-p2")
	rawProduce("p3 plain", "cmp-p3", 0, -1, nil, batch([]string{"a"}, nil))
	rawProduce("p3 gzip that is not", "cmp-p3", 0, -1, nil, batch([]string{"z"}, func(b *kmsg.RecordBatch) { b.Attributes = 1 }))
	rawProduce("p3 plain", "cmp-p3", 0, -1, nil, batch([]string{"b"}, nil))
	readBoth("p3", "cmp-p3")
	offsets("cmp-p1", 0, -1, -3, base)
}
