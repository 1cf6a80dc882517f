// Command franz is franz-go in the matrix of clients; package contract has the frame.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	c "taffrail.io/e2e/clients/contract"
)

// The key of ConsumerGroupHeartbeat.
const heartbeatKey = 68

func main() {
	c.Run(map[string]c.Step{
		"create": create, "produce": produce, "assign": assign, "group": group, "resume": resume, "topics": topics, "configs": configs,
		"partitions": partitions, "delete-records": deleteRecords, "delete-topic": deleteTopic, "groups": groups,
		"transactions": transactions, "kip848": kip848,
	})
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Limit)
}

func client(n *c.Names, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(n.Bootstrap...))...)
}

// admin gives its work an admin client for one step.
func admin(n *c.Names, work func(context.Context, *kadm.Client) error) error {
	connection, err := client(n)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := limited()
	defer cancel()
	return work(ctx, kadm.NewClient(connection))
}

func described(ctx context.Context, a *kadm.Client, topic string) (kadm.TopicDetail, error) {
	all, err := a.ListTopics(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	found := all[topic]
	if found.Err != nil {
		return found, found.Err
	}
	for _, partition := range found.Partitions {
		if partition.Leader < 0 {
			return found, errors.New("no leader")
		}
	}
	return found, nil
}

func create(n *c.Names) (string, error) {
	return c.Version("github.com/twmb/franz-go"), admin(n, func(ctx context.Context, a *kadm.Client) error {
		return makeTopic(ctx, a, n.Data, c.Partitions)
	})
}

func makeTopic(ctx context.Context, a *kadm.Client, topic string, partitions int) error {
	if _, err := a.CreateTopic(ctx, int32(partitions), 3, nil, topic); err != nil {
		return err
	}
	return c.Until("all leaders", func() (bool, error) {
		found, err := described(ctx, a, topic)
		return err == nil && found.Partitions.NumReplicas() == 3 && len(found.Partitions) == partitions, err
	})
}

func send(n *c.Names, topic string, first, count int, codec kgo.CompressionCodec, partition int) error {
	producer, err := client(n, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for number := first; number < first+count; number++ {
		place := number % c.Partitions
		if partition >= 0 {
			place = partition
		}
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(place), Key: []byte(c.Key(number)), Value: []byte(c.Value(number)),
		})
	}
	ctx, cancel := limited()
	defer cancel()
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func produce(n *c.Names) (string, error) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	part := c.Records / len(codecs)
	for index, codec := range codecs {
		if err := send(n, n.Data, index*part, part, codec, -1); err != nil {
			return "", err
		}
	}
	return "none gzip snappy lz4 zstd", nil
}

func assign(n *c.Names) (string, error) {
	places := map[string]map[int32]kgo.Offset{n.Data: {}}
	for partition := 0; partition < c.Partitions; partition++ {
		places[n.Data][int32(partition)] = kgo.NewOffset().AtStart()
	}
	reader, err := client(n, kgo.ConsumePartitions(places))
	if err != nil {
		return "", err
	}
	defer reader.Close()
	ctx, cancel := limited()
	defer cancel()
	found := map[int][]string{}
	for count := 0; count < c.Records; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return "", err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			found[int(r.Partition)] = append(found[int(r.Partition)], string(r.Value))
			count++
		})
	}
	return "", c.CheckOrder(found)
}

// member reads in the background, as an application's goroutine does, and tells how many partitions it has.
type member struct {
	client *kgo.Client
	lock   sync.Mutex
	owned  map[int32]bool
	seen   map[string]bool
	err    error
	done   chan struct{}
}

func join(n *c.Names, group string, ctx context.Context, options ...kgo.Opt) (*member, error) {
	m := &member{owned: map[int32]bool{}, seen: map[string]bool{}, done: make(chan struct{})}
	change := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range changed[n.Data] {
				if owned {
					m.owned[partition] = true
				} else {
					delete(m.owned, partition)
				}
			}
		}
	}
	options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(n.Data), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500*1e6),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))
	var err error
	if m.client, err = client(n, options...); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := m.client.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			m.lock.Lock()
			fetches.EachError(func(_ string, _ int32, err error) { m.err = err })
			fetches.EachRecord(func(r *kgo.Record) { m.seen[string(r.Value)] = true })
			m.lock.Unlock()
		}
	}()
	return m, nil
}

func (m *member) state() (int, int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if errors.Is(m.err, context.Canceled) || errors.Is(m.err, context.DeadlineExceeded) {
		return len(m.owned), len(m.seen), nil
	}
	return len(m.owned), len(m.seen), m.err
}

func group(n *c.Names) (string, error) {
	return members(n, n.Group)
}

func members(n *c.Names, name string, options ...kgo.Opt) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, err := join(n, name, ctx, options...)
	if err != nil {
		return "", err
	}
	defer first.client.Close()
	has := func(wanted int) func() (bool, error) {
		return func() (bool, error) {
			owned, _, err := first.state()
			return owned == wanted, err
		}
	}
	if err := c.Until("all partitions", has(c.Partitions)); err != nil {
		return "", err
	}
	second, err := join(n, name, ctx, options...)
	if err != nil {
		return "", err
	}
	err = c.Until("two members to share", func() (bool, error) {
		a, _, err := first.state()
		b, _, _ := second.state()
		return a+b == c.Partitions && a > 0 && b > 0, err
	})
	second.client.Close()
	if err != nil {
		return "", err
	}
	if err := c.Until("all partitions again", has(c.Partitions)); err != nil {
		return "", err
	}
	err = c.Until("all positions", func() (bool, error) {
		at := first.client.UncommittedOffsets()[n.Data]
		_, seen, err := first.state()
		for partition := int32(0); partition < c.Partitions; partition++ {
			if at[partition].Offset != c.Records/c.Partitions {
				return false, err
			}
		}
		return seen == c.Records, err
	})
	if err != nil {
		return "", err
	}
	limit, end := limited()
	defer end()
	return "3, 2+1, 3 partitions", first.client.CommitUncommittedOffsets(limit)
}

func resume(n *c.Names) (string, error) {
	if err := send(n, n.Data, c.Records, c.More, kgo.NoCompression(), -1); err != nil {
		return "", err
	}
	ctx, cancel := limited()
	defer cancel()
	reader, err := join(n, n.Group, ctx)
	if err != nil {
		return "", err
	}
	defer reader.client.Close()
	err = c.Until("the records after the commit", func() (bool, error) {
		_, seen, err := reader.state()
		return seen >= c.More, err
	})
	if err != nil {
		return "", err
	}
	if err := reader.client.CommitUncommittedOffsets(ctx); err != nil {
		return "", err
	}
	return "", c.CheckSet(reader.seen, c.Records, c.More)
}

func topics(n *c.Names) (string, error) {
	return "", admin(n, func(ctx context.Context, a *kadm.Client) error {
		if err := makeTopic(ctx, a, n.Admin, 1); err != nil {
			return err
		}
		all, err := a.ListTopics(ctx)
		if err == nil && !all.Has(n.Admin) {
			err = errors.New("not in the list")
		}
		return err
	})
}

func configs(n *c.Names) (string, error) {
	return "", admin(n, func(ctx context.Context, a *kadm.Client) error {
		value := c.Retention
		answers, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, n.Admin)
		if err != nil {
			return err
		}
		if answers[0].Err != nil {
			return answers[0].Err
		}
		return c.Until("the config", func() (bool, error) {
			described, err := a.DescribeTopicConfigs(ctx, n.Admin)
			if err != nil {
				return false, err
			}
			for _, config := range described[0].Configs {
				if config.Key == "retention.ms" && config.MaybeValue() == c.Retention {
					return true, nil
				}
			}
			return false, described[0].Err
		})
	})
}

func partitions(n *c.Names) (string, error) {
	return "", admin(n, func(ctx context.Context, a *kadm.Client) error {
		answers, err := a.UpdatePartitions(ctx, 4, n.Admin)
		if err != nil {
			return err
		}
		if err := answers[n.Admin].Err; err != nil {
			return err
		}
		return c.Until("four partitions", func() (bool, error) {
			found, err := described(ctx, a, n.Admin)
			return len(found.Partitions) == 4, err
		})
	})
}

func deleteRecords(n *c.Names) (string, error) {
	if err := send(n, n.Admin, 0, 20, kgo.NoCompression(), 0); err != nil {
		return "", err
	}
	return "", admin(n, func(ctx context.Context, a *kadm.Client) error {
		answers, err := a.DeleteRecords(ctx, kadm.Offsets{n.Admin: {0: {Topic: n.Admin, At: 5, LeaderEpoch: -1}}})
		if err != nil {
			return err
		}
		if err := answers.Error(); err != nil {
			return err
		}
		starts, err := a.ListStartOffsets(ctx, n.Admin)
		if err != nil {
			return err
		}
		if start := starts[n.Admin][0].Offset; start != 5 {
			return fmt.Errorf("starts at %d", start)
		}
		return nil
	})
}

func deleteTopic(n *c.Names) (string, error) {
	return "", admin(n, func(ctx context.Context, a *kadm.Client) error {
		if err := makeTopic(ctx, a, n.Gone, 1); err != nil {
			return err
		}
		answer, err := a.DeleteTopic(ctx, n.Gone)
		if err != nil {
			return err
		}
		if answer.Err != nil {
			return answer.Err
		}
		return c.Until("its end", func() (bool, error) {
			all, err := a.ListTopics(ctx)
			return !all.Has(n.Gone), err
		})
	})
}

func groups(n *c.Names) (string, error) {
	state := ""
	err := admin(n, func(ctx context.Context, a *kadm.Client) error {
		listed, err := a.ListGroups(ctx)
		if err != nil {
			return err
		}
		if _, there := listed[n.Group]; !there {
			return errors.New("not in the list")
		}
		described, err := a.DescribeGroups(ctx, n.Group)
		if err != nil {
			return err
		}
		state = strings.ToLower(described[n.Group].State)
		return described[n.Group].Err
	})
	return state, err
}

// refused tells the broker's word from a time-out.
func refused(err error) error {
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return c.Refused{Said: err}
}

func transactions(n *c.Names) (string, error) {
	producer, err := client(n, kgo.TransactionalID(n.Transaction), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return "", err
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return "", refused(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15e9)
	defer cancel()
	record := &kgo.Record{Topic: n.Admin, Partition: 1, Value: []byte("in a transaction")}
	if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		return "", refused(err)
	}
	return "", refused(producer.EndTransaction(ctx, kgo.TryCommit))
}

// kip848 asks for the API first: the client goes back to classic groups by itself where it is missing.
func kip848(n *c.Names) (string, error) {
	served := false
	err := admin(n, func(ctx context.Context, a *kadm.Client) error {
		versions, err := a.ApiVersions(ctx)
		if err != nil {
			return err
		}
		for _, broker := range versions.Sorted() {
			_, served = broker.KeyMaxVersion(heartbeatKey)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if !served {
		return "", c.Refused{Said: errors.New("ConsumerGroupHeartbeat is not in ApiVersions; the client goes back to classic groups")}
	}
	answer, err := members(n, n.Group+"-848", kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer())
	return answer, refused(err)
}
