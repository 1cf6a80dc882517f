// Command sarama is IBM's sarama in the matrix of clients; package contract has the frame.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	c "taffrail.io/e2e/clients/contract"
)

func main() {
	c.Run(map[string]c.Step{
		"create": create, "produce": produce, "assign": assign, "group": group, "resume": resume, "topics": topics, "configs": configs,
		"partitions": partitions, "delete-records": deleteRecords, "delete-topic": deleteTopic, "groups": groups,
		"transactions": transactions,
	})
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return config
}

// admin gives its work an admin client for one step.
func admin(n *c.Names, work func(sarama.ClusterAdmin) error) error {
	client, err := sarama.NewClusterAdmin(n.Bootstrap, settings())
	if err != nil {
		return err
	}
	defer client.Close()
	return work(client)
}

func makeTopic(a sarama.ClusterAdmin, topic string, partitions int) error {
	if err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 3}, false); err != nil {
		return err
	}
	return c.Until("all leaders", func() (bool, error) {
		count, err := described(a, topic)
		return count == partitions, err
	})
}

// described gives the number of partitions, once all have leaders.
func described(a sarama.ClusterAdmin, topic string) (int, error) {
	found, err := a.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if found[0].Err != sarama.ErrNoError {
		return 0, found[0].Err
	}
	for _, partition := range found[0].Partitions {
		if partition.Leader < 0 || len(partition.Replicas) != 3 {
			return 0, errors.New("no leader, or not three replicas")
		}
	}
	return len(found[0].Partitions), nil
}

func create(n *c.Names) (string, error) {
	return c.Version("github.com/IBM/sarama"), admin(n, func(a sarama.ClusterAdmin) error {
		return makeTopic(a, n.Data, c.Partitions)
	})
}

func send(n *c.Names, topic string, first, count int, codec sarama.CompressionCodec, partition int) error {
	config := settings()
	config.Producer.Compression = codec
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(n.Bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := first; number < first+count; number++ {
		place := number % c.Partitions
		if partition >= 0 {
			place = partition
		}
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(place),
			Key: sarama.StringEncoder(c.Key(number)), Value: sarama.StringEncoder(c.Value(number)),
		})
	}
	return producer.SendMessages(messages)
}

func produce(n *c.Names) (string, error) {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	part := c.Records / len(codecs)
	for index, codec := range codecs {
		if err := send(n, n.Data, index*part, part, codec, -1); err != nil {
			return "", fmt.Errorf("%v: %w", codec, err)
		}
	}
	return "none gzip snappy lz4 zstd", nil
}

func assign(n *c.Names) (string, error) {
	reader, err := sarama.NewConsumer(n.Bootstrap, settings())
	if err != nil {
		return "", err
	}
	defer reader.Close()
	found := map[int][]string{}
	for partition := 0; partition < c.Partitions; partition++ {
		part, err := reader.ConsumePartition(n.Data, int32(partition), sarama.OffsetOldest)
		if err != nil {
			return "", err
		}
		for len(found[partition]) < c.Records/c.Partitions {
			select {
			case message := <-part.Messages():
				found[partition] = append(found[partition], string(message.Value))
			case <-time.After(c.Limit):
				return "", fmt.Errorf("partition %d: %d records", partition, len(found[partition]))
			}
		}
		part.Close()
	}
	return "", c.CheckOrder(found)
}

// member is one consumer of a group with what it owns and has read.
type member struct {
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	lock   sync.Mutex
	owned  int
	seen   map[string]bool
	err    error
	done   chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = 0
	for _, partitions := range session.Claims() {
		m.owned += len(partitions)
	}
	return nil
}

// Cleanup commits what was marked, before the partitions go to others.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = 0
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			m.lock.Lock()
			m.seen[string(message.Value)] = true
			m.lock.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func join(n *c.Names) (*member, error) {
	group, err := sarama.NewConsumerGroup(n.Bootstrap, n.Group, settings())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: group, cancel: cancel, seen: map[string]bool{}, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{n.Data}, m); err != nil {
				m.lock.Lock()
				m.err = err
				m.lock.Unlock()
			}
		}
	}()
	return m, nil
}

func (m *member) leave() error {
	m.cancel()
	<-m.done
	return m.group.Close()
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
	if err := c.Until("two members to share", func() (bool, error) {
		a, _, err := first.state()
		b, _, _ := second.state()
		return a+b == c.Partitions && a > 0 && b > 0, err
	}); err != nil {
		return "", err
	}
	if err := second.leave(); err != nil {
		return "", err
	}
	if err := c.Until("all partitions again", has); err != nil {
		return "", err
	}
	seen := map[string]bool{}
	if err := c.Until("all records", func() (bool, error) {
		for _, m := range []*member{first, second} {
			m.lock.Lock()
			for value := range m.seen {
				seen[value] = true
			}
			m.lock.Unlock()
		}
		return len(seen) == c.Records, nil
	}); err != nil {
		return "", err
	}
	if err := first.leave(); err != nil {
		return "", err
	}
	return "3, 2+1, 3 partitions", c.CheckSet(seen, 0, c.Records)
}

func resume(n *c.Names) (string, error) {
	if err := send(n, n.Data, c.Records, c.More, sarama.CompressionNone, -1); err != nil {
		return "", err
	}
	reader, err := join(n)
	if err != nil {
		return "", err
	}
	if err := c.Until("the records after the commit", func() (bool, error) {
		_, seen, err := reader.state()
		return seen >= c.More, err
	}); err != nil {
		return "", err
	}
	if err := reader.leave(); err != nil {
		return "", err
	}
	return "", c.CheckSet(reader.seen, c.Records, c.More)
}

func listed(a sarama.ClusterAdmin, topic string) (bool, error) {
	all, err := a.ListTopics()
	_, there := all[topic]
	return there, err
}

func topics(n *c.Names) (string, error) {
	return "", admin(n, func(a sarama.ClusterAdmin) error {
		if err := makeTopic(a, n.Admin, 1); err != nil {
			return err
		}
		return c.Until("the topic in the list", func() (bool, error) { return listed(a, n.Admin) })
	})
}

func configs(n *c.Names) (string, error) {
	return "", admin(n, func(a sarama.ClusterAdmin) error {
		value := c.Retention
		change := map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}
		if err := a.IncrementalAlterConfig(sarama.TopicResource, n.Admin, change, false); err != nil {
			return err
		}
		return c.Until("the config", func() (bool, error) {
			entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: n.Admin})
			for _, entry := range entries {
				if entry.Name == "retention.ms" && entry.Value == c.Retention {
					return true, err
				}
			}
			return false, err
		})
	})
}

func partitions(n *c.Names) (string, error) {
	return "", admin(n, func(a sarama.ClusterAdmin) error {
		if err := a.CreatePartitions(n.Admin, 4, nil, false); err != nil {
			return err
		}
		return c.Until("four partitions", func() (bool, error) {
			count, err := described(a, n.Admin)
			return count == 4, err
		})
	})
}

func deleteRecords(n *c.Names) (string, error) {
	if err := send(n, n.Admin, 0, 20, sarama.CompressionNone, 0); err != nil {
		return "", err
	}
	if err := admin(n, func(a sarama.ClusterAdmin) error { return a.DeleteRecords(n.Admin, map[int32]int64{0: 5}) }); err != nil {
		return "", err
	}
	client, err := sarama.NewClient(n.Bootstrap, settings())
	if err != nil {
		return "", err
	}
	defer client.Close()
	start, err := client.GetOffset(n.Admin, 0, sarama.OffsetOldest)
	if err == nil && start != 5 {
		err = fmt.Errorf("starts at %d", start)
	}
	return "", err
}

func deleteTopic(n *c.Names) (string, error) {
	return "", admin(n, func(a sarama.ClusterAdmin) error {
		if err := makeTopic(a, n.Gone, 1); err != nil {
			return err
		}
		if err := a.DeleteTopic(n.Gone); err != nil {
			return err
		}
		return c.Until("its end", func() (bool, error) {
			there, err := listed(a, n.Gone)
			return !there, err
		})
	})
}

func groups(n *c.Names) (string, error) {
	state := ""
	err := admin(n, func(a sarama.ClusterAdmin) error {
		all, err := a.ListConsumerGroups()
		if err != nil {
			return err
		}
		if _, there := all[n.Group]; !there {
			return errors.New("not in the list")
		}
		described, err := a.DescribeConsumerGroups([]string{n.Group})
		if err != nil {
			return err
		}
		state = strings.ToLower(described[0].State)
		if described[0].Err != sarama.ErrNoError {
			return described[0].Err
		}
		return nil
	})
	return state, err
}

func transactions(n *c.Names) (string, error) {
	config := settings()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = n.Transaction
	producer, err := sarama.NewSyncProducer(n.Bootstrap, config)
	if err != nil {
		return "", c.Refused{Said: err}
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return "", c.Refused{Said: err}
	}
	message := &sarama.ProducerMessage{Topic: n.Admin, Partition: 1, Value: sarama.StringEncoder("in a transaction")}
	if _, _, err := producer.SendMessage(message); err != nil {
		return "", c.Refused{Said: err}
	}
	return "", producer.CommitTxn()
}
