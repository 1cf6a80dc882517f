// Command segmentio is segmentio's kafka-go in the matrix of clients; package contract has the frame.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	c "taffrail.io/e2e/clients/contract"
)

func main() {
	c.Run(map[string]c.Step{
		"create": create, "produce": produce, "assign": assign, "group": group, "resume": resume, "topics": topics, "configs": configs,
		"partitions": partitions, "delete-topic": deleteTopic, "groups": groups, "transactions": transactions,
	})
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Limit)
}

func client(n *c.Names) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(n.Bootstrap...), Timeout: 10 * time.Second}
}

// described gives the number of partitions, once all have leaders, or 0 without such a topic.
func described(n *c.Names, topic string) (int, error) {
	ctx, cancel := limited()
	defer cancel()
	answer, err := client(n).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return 0, err
	}
	for _, found := range answer.Topics {
		if found.Name == topic {
			for _, partition := range found.Partitions {
				if partition.Leader.Host == "" || len(partition.Replicas) != 3 {
					return 0, errors.New("no leader, or not three replicas")
				}
			}
			return len(found.Partitions), found.Error
		}
	}
	return 0, nil
}

func makeTopic(n *c.Names, topic string, partitions int) error {
	ctx, cancel := limited()
	defer cancel()
	answer, err := client(n).CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 3}},
	})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	return c.Until("all leaders", func() (bool, error) {
		count, err := described(n, topic)
		return count == partitions, err
	})
}

func create(n *c.Names) (string, error) {
	return c.Version("github.com/segmentio/kafka-go"), makeTopic(n, n.Data, c.Partitions)
}

// byNumber puts each record where the others' partitioners do.
func byNumber(message kafka.Message, partitions ...int) int {
	var number int
	_, _ = fmt.Sscanf(string(message.Value), "v%d", &number)
	return partitions[number%len(partitions)]
}

func send(n *c.Names, topic string, first, count int, codec kafka.Compression) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(n.Bootstrap...), Topic: topic, Balancer: kafka.BalancerFunc(byNumber), RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 10 * time.Millisecond,
	}
	defer writer.Close()
	var messages []kafka.Message
	for number := first; number < first+count; number++ {
		messages = append(messages, kafka.Message{Key: []byte(c.Key(number)), Value: []byte(c.Value(number))})
	}
	ctx, cancel := limited()
	defer cancel()
	return writer.WriteMessages(ctx, messages...)
}

func produce(n *c.Names) (string, error) {
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	part := c.Records / len(codecs)
	for index, codec := range codecs {
		if err := send(n, n.Data, index*part, part, codec); err != nil {
			return "", fmt.Errorf("%v: %w", codec, err)
		}
	}
	return "none gzip snappy lz4 zstd", nil
}

func assign(n *c.Names) (string, error) {
	ctx, cancel := limited()
	defer cancel()
	found := map[int][]string{}
	for partition := 0; partition < c.Partitions; partition++ {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: n.Bootstrap, Topic: n.Data, Partition: partition, MaxWait: 100 * time.Millisecond})
		for len(found[partition]) < c.Records/c.Partitions {
			message, err := reader.ReadMessage(ctx)
			if err != nil {
				return "", err
			}
			found[partition] = append(found[partition], string(message.Value))
		}
		reader.Close()
	}
	return "", c.CheckOrder(found)
}

// member is one consumer of a group: what it owns now, and what it has read.
type member struct {
	group  *kafka.ConsumerGroup
	lock   sync.Mutex
	owned  int
	seen   map[string]bool
	ends   map[int]int64
	latest *kafka.Generation
	err    error
}

// join makes a member that takes part in every generation until it is closed.
func join(n *c.Names) (*member, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: n.Group, Brokers: n.Bootstrap, Topics: []string{n.Data}, HeartbeatInterval: 500 * time.Millisecond,
		StartOffset: kafka.FirstOffset, JoinGroupBackoff: time.Second,
	})
	if err != nil {
		return nil, err
	}
	m := &member{group: group, seen: map[string]bool{}, ends: map[int]int64{}}
	go func() {
		for {
			generation, err := group.Next(context.Background())
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			m.lock.Lock()
			m.err, m.latest, m.owned = err, generation, 0
			if err == nil {
				m.owned = len(generation.Assignments[n.Data])
			}
			m.lock.Unlock()
			if err != nil {
				continue
			}
			for _, assignment := range generation.Assignments[n.Data] {
				generation.Start(func(ctx context.Context) { m.read(ctx, n, assignment) })
			}
		}
	}()
	return m, nil
}

func (m *member) read(ctx context.Context, n *c.Names, assignment kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: n.Bootstrap, Topic: n.Data, Partition: assignment.ID, MaxWait: 100 * time.Millisecond})
	defer reader.Close()
	_ = reader.SetOffset(assignment.Offset)
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		m.lock.Lock()
		m.seen[string(message.Value)] = true
		m.ends[assignment.ID] = message.Offset + 1
		m.lock.Unlock()
	}
}

func (m *member) commit(topic string) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.latest.CommitOffsets(map[string]map[int]int64{topic: m.ends})
}

func (m *member) state() (int, int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.owned, len(m.seen), m.err
}

func group(n *c.Names) (string, error) {
	first, err := join(n)
	if err != nil {
		return "", err
	}
	defer first.group.Close()
	has := func() (bool, error) {
		owned, _, err := first.state()
		return owned == c.Partitions, err
	}
	if err := c.Until("all partitions", has); err != nil {
		return "", err
	}
	second, err := join(n)
	if err != nil {
		return "", err
	}
	err = c.Until("two members to share", func() (bool, error) {
		a, _, err := first.state()
		b, _, _ := second.state()
		return a+b == c.Partitions && a > 0 && b > 0, err
	})
	second.group.Close()
	if err != nil {
		return "", err
	}
	if err := c.Until("all partitions again", has); err != nil {
		return "", err
	}
	if err := c.Until("all records", func() (bool, error) {
		first.lock.Lock()
		defer first.lock.Unlock()
		for partition := 0; partition < c.Partitions; partition++ {
			if first.ends[partition] != c.Records/c.Partitions {
				return false, nil
			}
		}
		return len(first.seen) == c.Records, nil
	}); err != nil {
		return "", err
	}
	return "3, 2+1, 3 partitions", first.commit(n.Data)
}

func resume(n *c.Names) (string, error) {
	if err := send(n, n.Data, c.Records, c.More, 0); err != nil {
		return "", err
	}
	reader, err := join(n)
	if err != nil {
		return "", err
	}
	defer reader.group.Close()
	if err := c.Until("the records after the commit", func() (bool, error) {
		_, seen, err := reader.state()
		return seen >= c.More, err
	}); err != nil {
		return "", err
	}
	if err := reader.commit(n.Data); err != nil {
		return "", err
	}
	return "", c.CheckSet(reader.seen, c.Records, c.More)
}

func topics(n *c.Names) (string, error) { return "", makeTopic(n, n.Admin, 1) }

func configs(n *c.Names) (string, error) {
	ctx, cancel := limited()
	defer cancel()
	answer, err := client(n).IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: n.Admin,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "retention.ms", Value: c.Retention, ConfigOperation: kafka.ConfigOperationSet},
			},
		}},
	})
	if err != nil {
		return "", err
	}
	if err := answer.Resources[0].Error; err != nil {
		return "", err
	}
	return "", c.Until("the config", func() (bool, error) {
		described, err := client(n).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: n.Admin}},
		})
		if err != nil {
			return false, err
		}
		for _, entry := range described.Resources[0].ConfigEntries {
			if entry.ConfigName == "retention.ms" && entry.ConfigValue == c.Retention {
				return true, nil
			}
		}
		return false, described.Resources[0].Error
	})
}

func partitions(n *c.Names) (string, error) {
	ctx, cancel := limited()
	defer cancel()
	answer, err := client(n).CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: n.Admin, Count: 4}},
	})
	if err != nil {
		return "", err
	}
	if err := answer.Errors[n.Admin]; err != nil {
		return "", err
	}
	return "", c.Until("four partitions", func() (bool, error) {
		count, err := described(n, n.Admin)
		return count == 4, err
	})
}

func deleteTopic(n *c.Names) (string, error) {
	if err := makeTopic(n, n.Gone, 1); err != nil {
		return "", err
	}
	ctx, cancel := limited()
	defer cancel()
	answer, err := client(n).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{n.Gone}})
	if err != nil {
		return "", err
	}
	if err := answer.Errors[n.Gone]; err != nil {
		return "", err
	}
	return "", c.Until("its end", func() (bool, error) {
		count, err := described(n, n.Gone)
		return count == 0, err
	})
}

func groups(n *c.Names) (string, error) {
	ctx, cancel := limited()
	defer cancel()
	found := false
	for _, broker := range n.Bootstrap {
		listed, err := client(n).ListGroups(ctx, &kafka.ListGroupsRequest{Addr: kafka.TCP(broker)})
		if err != nil {
			return "", err
		}
		for _, one := range listed.Groups {
			found = found || one.GroupID == n.Group
		}
	}
	if !found {
		return "", errors.New("not in the list")
	}
	described, err := client(n).DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{n.Group}})
	if err != nil {
		return "", err
	}
	return strings.ToLower(described.Groups[0].GroupState), described.Groups[0].Error
}

func transactions(n *c.Names) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	answer, err := client(n).InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: n.Transaction, TransactionTimeoutMs: 10000})
	if err == nil {
		err = answer.Error
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return "", c.Refused{Said: err}
	}
	return "it has no producer for transactions, only the requests", err
}
