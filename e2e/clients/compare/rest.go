package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func admin() {
	send("log dirs", kmsg.NewPtrDescribeLogDirsRequest())
	ld := kmsg.NewPtrDescribeLogDirsRequest()
	ld.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "cmp-a", Partitions: []int32{0, 9}}, {Topic: "cmp-none", Partitions: []int32{0}}}
	send("log dirs some", ld)
	lr := kmsg.NewPtrListPartitionReassignmentsRequest()
	lr.TimeoutMillis = 3000
	send("list reassignments", lr)
	lr.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "cmp-none", Partitions: []int32{0}}, {Topic: "cmp-a", Partitions: []int32{0}}}
	send("list reassignments some", lr)
	ar := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	ar.TimeoutMillis = 3000
	ar.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{
		{Topic: "cmp-a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0}, {Partition: 9}, {Partition: 1, Replicas: []int32{77}}, {Partition: 2, Replicas: []int32{1, 1}}}},
		{Topic: "cmp-none", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0}}}}
	send("reassign", ar)
	el := kmsg.NewPtrElectLeadersRequest()
	el.TimeoutMillis = 3000
	el.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "cmp-a", Partitions: []int32{0, 9}}, {Topic: "cmp-none", Partitions: []int32{0}}}
	send("elect preferred", el)
	el.ElectionType = 1
	send("elect unclean", el)
	el.ElectionType = 5
	send("elect 5", el)
	dq := kmsg.NewPtrDescribeQuorumRequest()
	dq.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "cmp-a", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	send("quorum other topic", dq)
	send("acls", kmsg.NewPtrDescribeACLsRequest())
	send("acl create", kmsg.NewPtrCreateACLsRequest())
	send("scram", kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())
	send("tokens", kmsg.NewPtrDescribeDelegationTokenRequest())
	dcq := kmsg.NewPtrDescribeClientQuotasRequest()
	send("quotas", dcq)
	uf := kmsg.NewPtrUpdateFeaturesRequest()
	uf.TimeoutMillis = 3000
	uf.ValidateOnly = true
	x := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	x.Feature, x.MaxVersionLevel = "nope", 3
	uf.FeatureUpdates = append(uf.FeatureUpdates, x)
	send("features", uf)
	pr := kmsg.NewPtrDescribeProducersRequest()
	pr.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "cmp-a", Partitions: []int32{0, 9}}}
	send("producers", pr)
	send("transactions", kmsg.NewPtrListTransactionsRequest())
	un := kmsg.NewPtrUnregisterBrokerRequest()
	un.BrokerID = 777
	send("unregister 777", un)
	al := kmsg.NewPtrAlterReplicaLogDirsRequest()
	al.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/nowhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "cmp-a", Partitions: []int32{0}}}}}
	send("alter log dirs", al)
	lc := kmsg.NewPtrListConfigResourcesRequest()
	resp, err := lc.RequestWith(ctx, cl)
	if err != nil {
		fmt.Println("config resources", err)
	} else {
		fmt.Println("config resources", resp.ErrorCode)
	}
}

func old() {
	for _, v := range []struct {
		name string
		v    *kversion.Versions
	}{{"1.0", kversion.V1_0_0()}, {"2.0", kversion.V2_0_0()}, {"2.1", kversion.V2_1_0()}, {"2.3", kversion.V2_3_0()}, {"2.4", kversion.V2_4_0()}, {"2.8", kversion.V2_8_0()},
		{"3.0", kversion.V3_0_0()}, {"3.5", kversion.V3_5_0()}, {"3.9", kversion.V3_9_0()}, {"4.0", kversion.V4_0_0()}, {"stable", kversion.Stable()}} {
		oneVersion(v.name, v.v)
	}
}

func oneVersion(name string, v *kversion.Versions) {
	limit, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	topic, group := "cmp-v"+name, "cmp-v"+name
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MaxVersions(v), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(), kgo.DisableAutoCommit(), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		fmt.Println(name, err)
		return
	}
	a := kadm.NewClient(c)
	step := func(s string, err error) { fmt.Println("version", name, s, err) }
	_, err = a.CreateTopic(limit, 3, int16(*rf), nil, topic)
	step("create", err)
	time.Sleep(300 * time.Millisecond)
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		options := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.MaxVersions(v), kgo.ProducerBatchCompression(codec), kgo.RecordDeliveryTimeout(8 * time.Second)}
		w, err := kgo.NewClient(options...)
		if err != nil {
			step("producer", err)
			continue
		}
		var list []*kgo.Record
		for i := 0; i < 20; i++ {
			list = append(list, &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(i, "valuevaluevaluevaluevaluevalue"))})
		}
		step("produce", w.ProduceSync(limit, list...).FirstErr())
		w.Close()
	}
	seen := 0
	for seen < 100 && limit.Err() == nil {
		f := c.PollFetches(limit)
		if err := f.Err(); err != nil {
			step("poll", err)
			break
		}
		seen += f.NumRecords()
	}
	step(fmt.Sprint("read ", seen), nil)
	step("commit", c.CommitUncommittedOffsets(limit))
	os, err := a.FetchOffsets(limit, group)
	n := int64(0)
	os.Each(func(o kadm.OffsetResponse) { n += o.At })
	step(fmt.Sprint("offsets ", n), err)
	lag, err := a.Lag(limit, group)
	if err == nil {
		for _, g := range lag {
			step(fmt.Sprint("lag ", g.Lag.Total(), g.State), g.Error())
		}
	} else {
		step("lag", err)
	}
	starts, err := a.ListStartOffsets(limit, topic)
	step("starts", firstErr(err, starts.Error()))
	after, err := a.ListOffsetsAfterMilli(limit, 5, topic)
	step("after", firstErr(err, after.Error()))
	_, err = a.DescribeTopicConfigs(limit, topic)
	step("configs", err)
	_, err = a.ListGroups(limit)
	step("groups", err)
	_, err = a.DescribeAllLogDirs(limit, nil)
	step("logdirs", err)
	_, err = a.UpdatePartitions(limit, 4, topic)
	step("partitions", err)
	c.Close()
	c2, _ := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MaxVersions(v))
	defer c2.Close()
	a = kadm.NewClient(c2)
	_, err = a.DeleteGroups(limit, group)
	step("delete group", err)
	_, err = a.DeleteTopics(limit, topic)
	step("delete", err)
}

func firstErr(list ...error) error {
	for _, e := range list {
		if e != nil {
			return e
		}
	}
	return nil
}
